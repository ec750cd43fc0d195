"""Hostile HTTP requests, as bytes: malformed lines and headers, smuggled identities, bombs in JSON, YAML and protobuf."""

import json
import random
import string
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple


class End(Enum):
    """What the client does after it has sent its bytes."""

    READ = "reads"
    HALF_CLOSE = "closes its direction and reads"
    LEAVE = "closes the connection"


class Hostile(NamedTuple):
    name: str
    data: bytes
    end: End = End.READ
    codes: Sequence[int] = ()
    """The codes that are right; empty: all but those of server errors."""


PODS = "/api/v1/namespaces/default/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/fuzz.example.com/v1/namespaces/default/widgets"
JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "BREW", "PRI", "")
_TARGETS = (
    "*",
    "",
    "/%",
    "/%00",
    "/%ff%fe",
    "//",
    "/../../etc/passwd",
    "http://other.example/api",
    "other.example:443",
    "/api/v1/" + "a/" * 2000,
    "/" + "a" * 6000,
    "/apis/" + "%2e%2e/" * 50,
    f"{PODS}/%2f",
    f"{PODS}/a%0d%0aX: y",
    f"{PODS}?limit=-1",
    f"{PODS}?limit=9" + "9" * 400,
    f"{PODS}?continue=" + "A" * 4000,
    f"{PODS}?labelSelector=" + "a%2Cb" * 800,
    f"{PODS}?fieldSelector=%00",
    f"{PODS}?watch=1&resourceVersion=x",
    f"{PODS}?resourceVersion=-1",
    f"{PODS}?resourceVersionMatch=Sometimes",
    f"{PODS}?" + "&".join("watch=0" for _ in range(900)),
    f"{PODS}?timeoutSeconds=-5&watch=1&resourceVersion=1x",
    "/openapi/v3/../../x",
    "/openapi/v3/apis/apps/v1?hash=" + "F" * 3000,
    f"{PODS}/x/log?tailLines=-1",
    f"{PODS}/x/log?sinceTime=yesterday",
    f"{PODS}/x/exec",
    f"{PODS}/x/unknown",
    "/api/v2",
    "/apis/a/b/c/d/e/f",
    f"{PODS}/x/portforward?ports=0",
    f"{PODS}/x/attach",
    "/metrics",
    "/debug/pprof",
    "/version/x",
)
_HEADERS = (
    "Content-Length: -1",
    "Content-Length: 99999999999999999999",
    "Content-Length: 1\r\nContent-Length: 2",
    "Transfer-Encoding: gzip",
    "Transfer-Encoding: chunked\r\nContent-Length: 4",
    "Transfer-Encoding : chunked",
    "Content-Encoding: gzip",
    "Expect: 100-continue",
    "Expect: the-worst",
    "X: \x00",
    "X: \xff\xfe",
    ": empty",
    "No colon",
    "X: a\r\n folded",
    "X: " + "y" * 100_000,
    "Host: a\r\nHost: b",
    "Accept: " + "a/b;q=2," * 2000,
    "Accept: application/json;as=Table;v=v9;g=x",
    "Accept: ;;;,,,",
    "Accept-Encoding: gzip;q=0",
    "Content-Type: " + "x" * 5000,
    "Authorization: Bearer " + "x" * 5000,
    "Upgrade: websocket\r\nConnection: Upgrade",
    "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    "Connection: close, keep-alive, x",
    "\r\n".join(f"X-{number}: y" for number in range(3000)),
    "If-None-Match: " + '"a",' * 1500,
)
_IDENTITIES = (
    "Impersonate-User: kubernetes-admin",
    "Impersonate-User: system:masters\r\nImpersonate-Group: system:masters",
    "Impersonate-Group: system:masters",
    "Impersonate-Uid: 1",
    "Impersonate-Extra-scopes: all",
    "impersonate-user:kubernetes-admin",
    "Impersonate-User: a\r\nImpersonate-User: kubernetes-admin",
)
_FRONT_PROXY = (
    "X-Remote-User: kubernetes-admin",
    "X-Remote-Group: system:masters",
    "X-Remote-Extra-a: b",
    "X-Forwarded-User: kubernetes-admin",
)


def request(method: str, target: str, headers: Sequence[str] = (), body: bytes = b"", media_type: str = JSON) -> bytes:
    """A request that is well-formed but for its parts."""
    lines = [f"{method} {target} HTTP/1.1", "Host: gateway", *headers]
    if body:
        lines += [f"Content-Type: {media_type}", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def pod_json(random_: random.Random) -> bytes:
    """A pod with one part that is wrong."""
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    wrong = random_.choice(
        (None, [], {}, "", -1, 2**70, 1e308, True, "x" * 5000, [[[[]]]], {"a": {"b": None}}, "\ud800", "\x00")
    )
    part: dict[str, object] = random_.choice((document, document["metadata"], document["spec"]))
    part[random_.choice((*part, "name", "labels", "status", "finalizers", "ownerReferences", "volumes"))] = wrong
    return json.dumps(document).encode()


WIDGET_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 0},
                "name": {"type": "string", "pattern": "^(a+)+$", "maxLength": 100},
                "list": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["key"],
                },
                "any": {"x-kubernetes-preserve-unknown-fields": True},
                "port": {"x-kubernetes-int-or-string": True},
                "color": {"type": "string", "default": "red"},
            },
            "x-kubernetes-validations": [{"rule": "!has(self.size) || self.size < 100"}],
        }
    },
}


def definition(schema: object, random_: random.Random | None = None) -> dict[str, object]:
    """The definition of widgets, with a schema, and with a random part that is wrong."""
    version: dict[str, object] = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names: dict[str, object] = {"plural": "widgets", "kind": "Widget"}
    spec: dict[str, object] = {"group": "fuzz.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    if random_ is not None and random_.random() < 0.5:
        part = random_.choice((spec, names, version))
        field = random_.choice((*part, "conversion", "subresources", "additionalPrinterColumns", "selectableFields"))
        part[field] = _wrong(random_)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.fuzz.example.com"},
        "spec": spec,
    }


def hostile_schema(random_: random.Random) -> object:
    """A schema that is deep, wide, or costs much to compile, to default or to evaluate."""
    size = random_.choice((3, 50, 2_000))
    deep: dict[str, object] = {"type": "string"}
    for _ in range(min(size, 300)):
        deep = {"type": "object", "properties": {"a": deep}}
    wide = {"type": "object", "properties": {f"f{number}": {"type": "string"} for number in range(size)}}
    pattern = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(" * size + "a+" + ")+" * size}}}
    default = {"type": "object", "properties": {"a": {"type": "object", "default": {"b": ["x"] * size}}}}
    rule = {"type": "object", "x-kubernetes-validations": [{"rule": "[1].all(x, " * size + "true" + ")" * size}]}
    alternatives = {"type": "object", "anyOf": [{"properties": {"a": {"minimum": number}}} for number in range(size)]}
    return random_.choice((deep, wide, pattern, default, rule, alternatives, _wrong(random_), WIDGET_SCHEMA))


def custom_body(random_: random.Random) -> tuple[bytes, str]:
    """The body of a write of a widget, and its media type."""
    size = random_.choice((1, 100, 5_000))
    spec = random_.choice(
        (
            {"size": _wrong(random_)},
            {"name": "a" * size + "b"},
            {"list": [{"key": f"k{number % 7}"} for number in range(size)]},
            {"any": _nested(size)},
            {"port": _wrong(random_)},
            {f"unknown{number}": None for number in range(size)},
            _wrong(random_),
        )
    )
    body = {"apiVersion": "fuzz.example.com/v1", "kind": "Widget", "metadata": {"name": "target"}, "spec": spec}
    text = _json(body) if random_.random() < 0.9 else _json(body)[: random_.randrange(50)]
    return text, random_.choice((JSON, "application/merge-patch+json", "application/apply-patch+yaml"))


def _nested(depth: int) -> object:
    result: object = 1
    for _ in range(min(depth, 400)):
        result = {"a": [result]}
    return result


def _wrong(random_: random.Random) -> object:
    return random_.choice(
        (None, [], {}, "", -1, 2**70, 1e308, True, "x" * 5000, [[[[]]]], {"a": {"b": None}}, "\ud800", "\x00")
    )


def pod_protobuf(random_: random.Random) -> bytes:
    """The envelope of a pod, with changed bytes, or a message that is nested without end."""
    if random_.random() < 0.3:
        inner = b""
        for _ in range(random_.choice((10, 100, 2000))):
            inner = b"\x0a" + _varint(len(inner)) + inner
        return b"k8s\x00" + b"\x12" + _varint(len(inner)) + inner
    pod = b"\x0a\x03\x0a\x01a\x12\x08\x12\x06\x0a\x01a\x12\x01b"
    body = bytearray(b"k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12" + _varint(len(pod)) + pod + b"\x1a\x00\x22\x00")
    for _ in range(random_.randrange(1, 6)):
        body[random_.randrange(len(body))] = random_.randrange(256)
    return bytes(body[: random_.randrange(1, len(body) + 1)])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def bomb(random_: random.Random) -> tuple[bytes, str]:
    """A body that is small, and large or deep when it is read; and its media type."""
    depth = random_.choice((100, 1000, 100_000))
    return random_.choice(
        (
            (b"[" * depth + b"]" * depth, JSON),
            (b'{"a":' * depth + b"1" + b"}" * depth, JSON),
            (b'{"metadata":{"labels":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}}", "application/merge-patch+json"),
            (b"1" * 100_000, JSON),
            (b'{"a":' + b"9" * 5000 + b"}", JSON),
            (b'{"kind":"Pod","metadata":{"name":"a"' + b',"name":"a"' * 2000 + b"}}", JSON),
            (
                b"a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c]\ne: [*d,*d,*d,*d]\n",
                "application/yaml",
            ),
            (b"[" * 5000, "application/yaml"),
            _doubling_copies(random_.choice((4, 12, 40))),
            _long_lists(random_.choice((100, 20_000))),
            _merge(b'{"metadata":{"annotations":{"a":' + b"[" * depth + b"]" * depth + b"}}}"),
            _strategic(b'{"spec":' + b'{"template":' * depth + b"1" + b"}" * depth + b"}"),
            _strategic(
                json.dumps({"spec": {"$retainKeys": ["a"] * 20_000, "$setElementOrder/containers": [{}] * 20_000}}).encode()
            ),
            (b"metadata: {labels: " + b"{a: " * depth + b"1" + b"}" * depth + b"}", "application/apply-patch+yaml"),
            (
                b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"target","labels":{'
                + b",".join(b'"k%d":"v"' % number for number in range(20_000))
                + b"}}}",
                "application/apply-patch+yaml",
            ),
            (
                json.dumps([{"op": "test", "path": "/spec", "value": "x" * 100}] * 12_000).encode(),
                "application/json-patch+json",
            ),
            (
                json.dumps(
                    [{"op": "add", "path": f"/metadata/labels/k{number}", "value": "v"} for number in range(9_000)]
                ).encode(),
                "application/json-patch+json",
            ),
            (b"\xff\xfe" * 100, JSON),
            (b"\x1f\x8b" + bytes(1000), JSON),
            (
                json.dumps([{"op": "copy", "from": "", "path": "/metadata/labels/a"}] * 60).encode(),
                "application/json-patch+json",
            ),
            (json.dumps([{"op": "add", "path": "/" + "a/" * 3000, "value": 1}]).encode(), "application/json-patch+json"),
            (
                json.dumps(
                    {
                        "spec": {
                            "containers": [{"$patch": "replace"}, {"name": "a", "$patch": "delete"}],
                            "$setElementOrder/containers": 5,
                        }
                    }
                ).encode(),
                "application/strategic-merge-patch+json",
            ),
        )
    )


def _merge(body: bytes) -> tuple[bytes, str]:
    return body, "application/merge-patch+json"


def _strategic(body: bytes) -> tuple[bytes, str]:
    return body, "application/strategic-merge-patch+json"


def _doubling_copies(copies: int) -> tuple[bytes, str]:
    """A JSON patch whose result doubles with each operation."""
    return _operations([{"op": "copy", "from": "/metadata", "path": f"/metadata/x{number}"} for number in range(copies)])


def _operations(operations: Sequence[object]) -> tuple[bytes, str]:
    return _json(operations), "application/json-patch+json"


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def _long_lists(length: int) -> tuple[bytes, str]:
    """A strategic merge patch of lists that are merged by key: a quadratic merge does not end."""
    containers = [{"name": f"c{number}", "image": "b", "$patch": "delete"} for number in range(length)]
    tolerations = [{"key": f"k{number}"} for number in range(length)]
    return _strategic(_json({"spec": {"containers": containers, "tolerations": tolerations}}))


class Inputs:
    """Hostile requests of a seed: number n is always the same."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._kinds: Sequence[Callable[[random.Random], Hostile]] = (
            self._line,
            self._target,
            self._header,
            self._identity,
            self._front_proxy,
            self._body,
            self._bomb,
            self._definition,
            self._custom,
            self._framing,
            self._stream,
            self._noise,
        )

    def __iter__(self) -> Iterator[Hostile]:
        number = 0
        while True:
            yield self.input(number)
            number += 1

    def input(self, number: int) -> Hostile:
        random_ = random.Random(f"{self._seed}:{number}")
        result = self._kinds[number % len(self._kinds)](random_)
        return result._replace(name=f"{self._seed}:{number} {result.name}")

    def _line(self, random_: random.Random) -> Hostile:
        version = random_.choice(
            ("HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "HTTP/2.0", "http/1.1", "", "SPDY/3", "HTTP/1.1 x", "HTTP/1")
        )
        method, target = random_.choice(_METHODS), random_.choice(("/api", PODS, *_TARGETS))
        return Hostile("line", f"{method} {target} {version}\r\nHost: a\r\n\r\n".encode("latin-1"), End.HALF_CLOSE)

    def _target(self, random_: random.Random) -> Hostile:
        return Hostile("target", request(random_.choice(("GET", "DELETE", "PATCH", "POST")), random_.choice(_TARGETS)))

    def _header(self, random_: random.Random) -> Hostile:
        chosen = random_.sample(_HEADERS, random_.randrange(1, 3))
        return Hostile("header", request(random_.choice(("GET", "POST")), PODS, chosen), random_.choice(tuple(End)))

    def _identity(self, random_: random.Random) -> Hostile:
        """An ordinary user who names somebody else."""
        return Hostile("identity", request("GET", PODS, [random_.choice(_IDENTITIES)]), codes=(400, 403))

    def _front_proxy(self, random_: random.Random) -> Hostile:
        """A user whose rights the headers of a front proxy must not change."""
        headers = random_.sample(_FRONT_PROXY, 2)
        return Hostile("front-proxy", request("GET", PODS, headers), codes=(401, 403))

    def _body(self, random_: random.Random) -> Hostile:
        body, media_type = (pod_json(random_), JSON) if random_.random() < 0.5 else (pod_protobuf(random_), PROTOBUF)
        target = f"{PODS}?dryRun=All&fieldValidation={random_.choice(('Strict', 'Warn', 'Ignore', 'x'))}"
        return Hostile("body", request("POST", target, (), body, media_type))

    def _bomb(self, random_: random.Random) -> Hostile:
        body, media_type = bomb(random_)
        is_patch = "patch" in media_type
        manager = "&fieldManager=fuzz&force=true" if "apply" in media_type else ""
        target = f"{PODS}/target?dryRun=All{manager}" if is_patch else f"{PODS}?dryRun=All"
        return Hostile("bomb", request("PATCH" if is_patch else "POST", target, (), body, media_type))

    def _definition(self, random_: random.Random) -> Hostile:
        target = f"{DEFINITIONS}?dryRun=All&fieldValidation={random_.choice(('Strict', 'Warn', 'Ignore'))}"
        return Hostile("definition", request("POST", target, (), _json(definition(hostile_schema(random_), random_))))

    def _custom(self, random_: random.Random) -> Hostile:
        body, media_type = custom_body(random_)
        if "patch" in media_type:
            manager = "&fieldManager=fuzz&force=true" if "apply" in media_type else ""
            data = request("PATCH", f"{WIDGETS}/target?dryRun=All{manager}", (), body, media_type)
        else:
            data = request("POST", f"{WIDGETS}?dryRun=All", (), body, media_type)
        untyped = (200, 201, 400, 404, 409, 413, 415, 422, 429, 500, 503) if "apply" in media_type else ()
        return Hostile("custom", data, codes=untyped)  # 500: a configuration of other types, as in Kubernetes

    def _framing(self, random_: random.Random) -> Hostile:
        head = f"POST {PODS} HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\n"
        return Hostile(
            "framing",
            head.encode()
            + random_.choice(
                (
                    b"Content-Length: 100\r\n\r\n{}",
                    b"Content-Length: 1\r\n\r\n{}GET / HTTP/1.1\r\n\r\n",
                    b"Content-Length: 4000000\r\n\r\n{}",
                    b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
                    b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
                    b"Content-Length: x\r\n\r\n{}",
                    b"Transfer-Encoding: chunked\r\n\r\n1;" + b"e" * 20_000 + b"\r\n{",
                    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nTrailer: x\r\n\r\n",
                )
            ),
            random_.choice((End.HALF_CLOSE, End.LEAVE)),
        )

    def _stream(self, random_: random.Random) -> Hostile:
        watch = request("GET", f"{PODS}?watch=1&timeoutSeconds=1")
        upgrade = [
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ]
        protocol = random_.choice(("v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io", "x", ""))
        socket = request(
            "GET",
            f"{PODS}/target/{random_.choice(('exec', 'attach', 'portforward'))}",
            [*upgrade, f"Sec-WebSocket-Protocol: {protocol}"],
        )
        data = random_.choice((watch, socket, socket + random_.randbytes(200)))
        return Hostile("stream", data, random_.choice((End.HALF_CLOSE, End.LEAVE)))

    def _noise(self, random_: random.Random) -> Hostile:
        alphabet = (string.printable + "\x00\xff").encode("latin-1")
        data = random_.randbytes(300) if random_.random() < 0.5 else bytes(random_.choices(alphabet, k=300))
        return Hostile("noise", data + b"\r\n\r\n", random_.choice((End.HALF_CLOSE, End.LEAVE)))
