"""The accepted differences from kube-apiserver's recorded answers: paths by the name of the request, with the reasons.

docs/kubernetes-differences.md explains those that are on purpose."""

from collections.abc import Mapping, Sequence

_STATUS = ("body.code", "body.details", "body.message", "body.reason", "code")
_DETAILS = ("body.details.causes", "body.details.kind", "body.details.name", "body.message")
_GROUPS: Sequence[tuple[str, Mapping[str, Sequence[str]]]] = (
    (
        "Kubernetes shows a comparison of Go structures; the gateway names the changed fields",
        {"immutable spec": ("body.details.causes[0].message", "body.message")},
    ),
    (
        "Kubernetes hides the reason; the gateway names the operation that failed",
        {"json patch test fails": _DETAILS, "json patch nonsense": _DETAILS},
    ),
    ("continue tokens have another format", {"list bad continue": ("body.message",)}),
    (
        "column definitions have no descriptions",
        {"table": tuple(f"body.columnDefinitions[{index}].description" for index in range(9))},
    ),
    ("the object of a bookmark has metadata only", {"watch initial events": ("body[1].object.spec", "body[1].object.status")}),
    ("anonymous requests are disabled, as with --anonymous-auth=false", {"no token": _STATUS}),
    ("users have no UID", {"self review": ("body.status.userInfo.uid",)}),
)
ACCEPTED: Mapping[str, tuple[Sequence[str], str]] = {
    name: (paths, reason) for reason, requests in _GROUPS for name, paths in requests.items()
}

_KINDS_GROUPS: Sequence[tuple[str, Mapping[str, Sequence[str]]]] = (
    (
        "Kubernetes hides the reason; the gateway names the operation that failed",
        {"custom: json patch test fails": (_DETAILS[0], "body.details.group", *_DETAILS[1:])},
    ),
    (
        "column definitions of built-in kinds have no descriptions",
        {
            f"{kind}: table": tuple(f"body.columnDefinitions[{index}].description" for index in range(columns))
            for kind, columns in (("crd", 2), ("vwc", 3), ("vapb", 4), ("ingressclass", 4), ("ingress", 6), ("cronjob", 10))
        },
    ),
    (
        "Kubernetes reports the invalid fields of an object in random order",
        {
            "custom invalid: types": (
                *(f"body.details.causes[{index}].{part}" for index in (1, 2) for part in ("field", "message")),
                "body.message",
            )
        },
    ),
    (
        "Kubernetes shows Go structures; the API server shows the fields",
        {"pdb invalid: both": ("body.details.causes[0].message", "body.message")},
    ),
    ("the recording replaces 1500m by AGE", {"hpa: all metrics": ("body.spec.metrics[1].pods.target.averageValue",)}),
)
KINDS_ACCEPTED: Mapping[str, tuple[Sequence[str], str]] = {
    name: (paths, reason) for reason, requests in _KINDS_GROUPS for name, paths in requests.items()
}
