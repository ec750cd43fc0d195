"""The accepted differences from kube-apiserver's responses: paths by the name of the request, each group with its reason."""

from collections.abc import Mapping, Sequence

_STATUS = ("body.code", "body.details", "body.message", "body.reason", "code")
_GROUPS: Sequence[tuple[str, Mapping[str, Sequence[str]]]] = (
    (
        "the message has the same fact in other words",
        {
            "not JSON": ("body.message",),
            "406": ("body.message",),
            "patch wrong media type": ("body.message",),
            "list bad continue": ("body.message",),
            "delete wrong uid": ("body.details.kind", "body.message"),
            "immutable spec": ("body.details.causes[0].message", "body.message"),
            "selector immutable": ("body.details.causes[1].message", "body.message"),
        },
    ),
    (
        "the violations are the same, in another order",
        {
            "invalid: quantities, ports, duplicates": (
                "body.details.causes[2].field",
                "body.details.causes[2].message",
                "body.details.causes[2].reason",
                "body.details.causes[3].field",
                "body.details.causes[3].message",
                "body.details.causes[3].reason",
                "body.message",
            ),
        },
    ),
    (
        "Kubernetes hides the reason; the gateway names the operation that failed",
        {
            "json patch test fails": ("body.details.causes", "body.details.kind", "body.details.name", "body.message"),
            "json patch nonsense": _STATUS,
            "smp unknown directive": _STATUS,
        },
    ),
    ("an error is always a Status", {"unknown group": ("body", "contentType")}),
    ("a request without credentials is 401, because anonymous users have no roles", {"no token": _STATUS}),
    ("users have no UID", {"self review": ("body.status.userInfo.uid",)}),
    ("cells that are whole numbers are numbers", {"table": ("body.rows[0].cells[3]",)}),
    ("the object of a bookmark has metadata only", {"watch initial events": ("body[1].object.spec",)}),
    (
        "all kinds with a spec have a generation, and a delete without a grace period says so",
        {
            "namespace": ("body.metadata.generation",),
            "delete namespace": ("body.metadata.deletionGracePeriodSeconds", "body.metadata.generation"),
        },
    ),
    (
        "the API server deletes the object at once, and returns its last version",
        {
            "delete now": (
                "body.metadata.deletionGracePeriodSeconds",
                "body.metadata.deletionTimestamp",
                "body.metadata.generation",
            ),
        },
    ),
)
ACCEPTED: Mapping[str, tuple[Sequence[str], str]] = {
    name: (paths, reason) for reason, requests in _GROUPS for name, paths in requests.items()
}
