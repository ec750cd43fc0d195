"""Single values that nobody expects, by the name of the field that they are for."""

import base64
import json
import random
from collections.abc import Callable, Mapping

INVALID_MARK = "!invalid"
"""Stands in a text for bytes that are no UTF-8, which protobuf would not encode; see `spoil_marks`."""
_NO_UTF8 = b"\xff\xfe\xc0\x80\xed\xa0\x80\xf5"
NAMES = ("web-0", "a", "b", "web", "data", "edge-0", "edge-1", "high", "all", "reader", "fast", "scheduler")
NAMESPACES = ("default", "default", "team", "kube-system", "kube-node-lease", "")
_TEXTS = (
    "", " ", "\0", "a\0b", "\n", "a\r\nE forged: line", "\t", "\x7f", "\x1b[31m", "é", "\u202eabc", "\ufeff", "😀",
    "\U0010ffff", "\ufb00", "\u0661\u0662", "../../../etc", "..", ".", "/", "//", "a/b", "a/b/c", "%2f", "%00", "%s%n%d",
    "a%", "-", "-a", "a-", "a.", "A", "_", "null", "true", "0", "-1", "NaN", "Infinity", "1e999", "\\", '"', "'; --", "*",
    "!", "=", ",", "(", "${x}", "$(A)", "{{.}}", INVALID_MARK, f"a{INVALID_MARK}b",
)  # fmt: skip
_WORDS = (
    "Always", "Never", "OnFailure", "IfNotPresent", "TCP", "UDP", "SCTP", "HTTP", "HTTPS", "Pending", "Running", "Succeeded",
    "Failed", "NoSchedule", "PreferNoSchedule", "NoExecute", "Exists", "DoesNotExist", "Equal", "In", "NotIn", "Gt", "Lt",
    "Honor", "Ignore", "True", "False", "Unknown", "DoNotSchedule", "ScheduleAnyway", "Container", "Pod",
    "PersistentVolumeClaim", "Node", "Service", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod",
    "Retain", "Delete", "Recycle", "Immediate", "Bound", "WaitForFirstConsumer", "Filesystem", "Block", "ClusterIP",
    "NodePort", "LoadBalancer", "ExternalName", "None", "User", "Group", "ServiceAccount", "ClusterRole", "Role",
    "rbac.authorization.k8s.io", "get", "update", "pods", "nodes", "pods/status", "Normal", "Warning", "All", "Orphan",
    "Foreground", "PriorityClass", "BestEffort", "NotBestEffort", "Terminating", "CrossNamespacePodAffinity", "Guaranteed",
    "PreemptLowerPriority", "system-cluster-critical", "Localhost", "RuntimeDefault", "Unconfined", "Ready", "PodScheduled",
    "DisruptionTarget", "metadata.name", "limits.cpu", "status.podIP", "cpu", "memory", "hugepages-2Mi", "example.com/gpu",
    "kubernetes.io/x", "pinnace.io/fleet", "edge", "edge-7", "10.0.0.1", "::1", "10.0.0.0/8", "fe80::1%eth0",
)  # fmt: skip
_QUANTITIES = (
    "", "0", "-0", "-1", "+1", "1", "1.", ".5", "1.5Gi", "500m", "1n", "1e3", "1E3", "1e-999", "1e999", "9e999", "1e18",
    "1e19", "9E", "9Ei", "99999999999999999999", "NaN", "nan", "inf", "-Infinity", "sNaN", "0x10", "1_000", "1,5", "1 Gi",
    "Gi", "1ki", "1GiB", "\uff11", "\u0663", "0." + "0" * 60 + "1", "9" * 64, "9" * 65, "1" * 5000, "1e+0003", "--1", "1e",
    "1e+", "1m\n",
)  # fmt: skip
_VERSIONS = (
    "", "0", "1", "2", "-1", "00", "+1", "1.0", "9" * 18, "9" * 19, "9" * 4300, "9" * 5000, "\u0661\u0662", "\xb2", "0x1",
    " 1", "1\n", "999999999", str(2**63 - 1), str(2**63), str(2**64),
)  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 3, 5, 30, 63, 64, 80, 100, 1000, 65535, 65536, 10**9, -(10**9), 253_402_300_799, 253_402_300_800)
_DEPTHS = (5, 50, 99, 101, 1000, 20_000)


def text(rng: random.Random, field: str) -> str:
    """For a field of this name: of its own kind, but wrong; or anything."""
    special = _BY_FIELD.get(field)
    if special is not None and rng.random() < 0.8:
        return special(rng)
    return rng.choice((_any_text, _any_text, _word, _name, _long))(rng)


def number(rng: random.Random, bits: int) -> int:
    top = 1 << bits - 1
    edges = (top - 1, -top, top - 2, top // 2, rng.randrange(-top, top))
    value = rng.choice(edges) if rng.random() < 0.4 else rng.choice(_NUMBERS)
    return min(max(value, -top), top - 1)


def data(rng: random.Random) -> bytes:
    """For a field of bytes, which is a patch in JSON where the API has one."""
    if rng.random() < 0.2:
        return rng.randbytes(rng.randrange(40))
    body = _json(rng)
    return rng.choice((body, body, body[:-1], body + b"}", b"\xef\xbb\xbf" + body, body.replace(b'"', b"'")))


def spoil_marks(encoded: bytes) -> bytes:
    """The encoded message, with bytes that are no UTF-8 where its texts have the mark for them."""
    return encoded.replace(INVALID_MARK.encode(), _NO_UTF8)


def _any_text(rng: random.Random) -> str:
    return rng.choice(_TEXTS)


def _word(rng: random.Random) -> str:
    return rng.choice(_WORDS)


def _name(rng: random.Random) -> str:
    return rng.choice(NAMES)


def _namespace(rng: random.Random) -> str:
    return rng.choice(NAMESPACES)


def _long(rng: random.Random) -> str:
    size = rng.choice((15, 16, 63, 64, 253, 254, 317, 318, 1000, 5000, 5000, 66_000, 300_000))
    unit = rng.choice(("a", "a", "A", "a.", "a/", "é", "😀", "\0", "\n", "%", "1", "(", "a=b,"))
    return (unit * size)[:size]


def _key(rng: random.Random) -> str:
    return rng.choice(("app", "tier", "zone", "pinnace.io/fleet", "a/b", "example.com/x", "A", "")) or _any_text(rng)


def _selector(rng: random.Random, key: Callable[[random.Random], str]) -> str:
    """By the grammar of pinnace.api.selectors; then something is taken out, put in or repeated."""
    terms = []
    for _ in range(rng.choice((1, 1, 2, 3, 300))):
        name, value = key(rng), rng.choice(("a", "web", "", "b\\,c", "edge-0", "Running", "\\"))
        several = ",".join(rng.choices(("a", "b", "edge-0", "", "default"), k=rng.choice((1, 2, 500))))
        terms.append(
            rng.choice((
                f"{name}={value}", f"{name}=={value}", f"{name}!={value}", f"{name} in ({several})",
                f"{name} notin ({several})", name, f"!{name}",
            ))
        )  # fmt: skip
    made = rng.choice((",", ",", " , ", "")).join(terms)
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(made) + 1)
        made = (
            made[:at] + rng.choice(("", "(", ")", "=", "!", ",", "\\", " in ", "\0", "é", made)) + made[at + rng.randrange(3) :]
        )
    return made


def _label_selector(rng: random.Random) -> str:
    return _selector(rng, _key)


def _field_selector(rng: random.Random) -> str:
    names = (
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "status.phase",
        "type",
        "reason",
        "involvedObject.name",
        "x",
    )
    return _selector(rng, lambda rng: rng.choice(names))


def _token(rng: random.Random) -> str:
    """A continue token as somebody would forge it; see pinnace.apiserver.cacher.listing."""
    revision = rng.choice(("1", "5", "100", "-1", "0", "x", "\u0661", str(2**63 - 1), str(2**63), "9" * 5000))
    digest = rng.choice(("0" * 16, "f" * 16, "", "x y"))
    after = rng.choice(("/registry/pods/", "/registry/pods/default/a", "/", "", "\0", "é", "/registry/" + "a" * 3000))
    made = base64.urlsafe_b64encode(f"{revision} {digest} {after}".encode()).decode()
    return rng.choice((made.rstrip("="), made, made[1:], made + "=", made * 2, "=", "====", "a", "-_-_"))


def _json(rng: random.Random) -> bytes:
    depth = rng.choice(_DEPTHS)
    metadata = {"labels": {_key(rng): _any_text(rng)}, "finalizers": [], "name": _name(rng), "annotations": None}
    return rng.choice((
        json.dumps({"metadata": metadata}).encode(),
        json.dumps({"spec": {_word(rng): number(rng, 64), "containers": [{"$patch": "delete", "name": "main"}]}}).encode(),
        json.dumps({"status": {"capacity": {"cpu": rng.choice(_QUANTITIES)}, "phase": _word(rng)}}).encode(),
        b'{"spec":' * depth + b"1" + b"}" * depth,
        b"[" * depth + b"]" * depth,
        b'{"metadata":{"labels":{"a":"\\ud800"}}}',
        b'{"metadata":{"generation":1e999,"labels":{"a":NaN}}}',
        b'{"metadata":{"labels":{"a":"b","a":"c"}},"metadata":{}}',
        b'{"metadata":{"generation":' + b"9" * 5000 + b"}}",
        b'{"metadata":{"labels":{"a":"\xff"}}}',
        b'{"$patch":"replace","$retainKeys":[1],"$deleteFromPrimitiveList/finalizers":{}}',
        b"{}", b"null", b"[]", b'"a"', b"1", b"",
    ))  # fmt: skip


_BY_FIELD: Mapping[str, Callable[[random.Random], str]] = {
    "labelSelector": _label_selector,
    "fieldSelector": _field_selector,
    "continue": _token,
    "resourceVersion": lambda rng: rng.choice(_VERSIONS),
    "string": lambda rng: rng.choice(_QUANTITIES),
    "name": _name,
    "namespace": _namespace,
    "election": _name,
    "holder": _name,
    "nodes": _name,
    "key": _key,
    "dryRun": lambda rng: "All",
}
