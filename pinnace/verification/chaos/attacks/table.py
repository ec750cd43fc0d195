"""The attacks on a gateway, one row each. A row says what the attacker sends, and which answers it may get.

    Attack("refusals", "300 connections of a caller without a role, each refusal followed by the next request", ...)

An attack runs until it is cancelled. Its rates and sizes are constants, so that measurements are comparable. To add an attack,
add a function and a row; the tests of tests/robustness/door and the faults of `pinnace chaos` run each row.

The attackers are a stranger (a certificate and no role), a reader (ClusterRole view), an editor (ClusterRole edit), callers
with random bearer tokens, and clients that never start a TLS handshake. `callers.py` creates them.
"""

import gzip
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from pinnace.verification.chaos.attacks.callers import EDITOR, NAMESPACE, READER, STRANGER, TARGET
from pinnace.verification.chaos.attacks.wire import ANONYMOUS, CLOSED, RESET, AttackTarget, build_request, repeat_forever

JSON, YAML = {"Content-Type": "application/json"}, {"Content-Type": "application/yaml"}
ALL_PODS = "/api/v1/pods"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POD = f"{PODS}/{TARGET}"
FUTURE = 1 << 40
"""A revision that a cluster does not reach."""
JSON_SIZE, YAML_SIZE, STALLED_SIZE = 2_800_000, 960_000, 2_900_000
"""Bytes of a body. The gateway accepts 3 MiB."""
TOKEN_RATE = 1_157.0
"""Random bearer tokens per second."""
PAUSE = 1.0
"""Seconds between an answer and the next request, for attacks that occupy rather than flood."""
HOLD, PATIENCE = 7.0, 16.0
"""Seconds in which a server closes connections that send and receive nothing, and those without a TLS handshake."""
BUSY = "429"
ENDS = (BUSY, CLOSED, RESET)
"""What a server may do instead of answering as usual."""


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack. `must`: the outcomes (wire.py) that show that the attack took place; () if it has none. `may`: other outcomes
    that are correct. `seconds`: the duration of a measurement. `count`: the number of outcomes of `must` in it."""

    name: str
    what: str
    send_requests: Callable[[AttackTarget], Awaitable[None]]
    must: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    seconds: float = 4.0
    count: int = 1


def _numbered_lines(size: int, line: str) -> str:
    """Return this many bytes of lines with distinct numbers."""
    return "".join(line.format(number) for number in range(size // len(line.format(100_000))))


def pod_json(size: int) -> bytes:
    """Return a pod in JSON with so many labels that it has about this many bytes."""
    labels = _numbered_lines(size, '"label-{:06d}":"value",')[:-1]
    return f'{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"large","labels":{{{labels}}}}}}}'.encode()


def pod_yaml(size: int) -> bytes:
    """Return the same in YAML."""
    labels = _numbered_lines(size, "    label-{:06d}: value\n")
    return f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: large\n  labels:\n{labels}".encode()


def _post_request(body: bytes, headers: dict[str, str]) -> bytes:
    return build_request("POST", PODS, headers, body)


async def refused_json(target: AttackTarget) -> None:
    await target.repeat_requests(STRANGER, repeat_forever(_post_request(pod_json(JSON_SIZE), JSON)), 1)


async def refused_yaml(target: AttackTarget) -> None:
    await target.repeat_requests(STRANGER, repeat_forever(_post_request(pod_yaml(YAML_SIZE), YAML)), 1)


async def yaml_lists(target: AttackTarget) -> None:
    await target.repeat_requests(READER, repeat_forever(build_request("GET", ALL_PODS, {"Accept": "application/yaml"})), 1)


def future_lists(count: int) -> Callable[[AttackTarget], Awaitable[None]]:
    path = f"{ALL_PODS}?resourceVersion={FUTURE}&resourceVersionMatch=NotOlderThan"
    return lambda target: target.repeat_requests(READER, repeat_forever(build_request("GET", path)), count, pause=PAUSE)


def stalled_bodies(user: str, count: int) -> Callable[[AttackTarget], Awaitable[None]]:
    body = pod_json(STALLED_SIZE)
    data = build_request("POST", PODS, JSON, body[:-1], length=len(body))
    return lambda target: target.repeat_requests(user, repeat_forever(data), count, pause=PAUSE)


async def unread_lists(target: AttackTarget) -> None:
    await target.hold_connections(READER, build_request("GET", ALL_PODS), 200, read=False, receive_buffer=1 << 12)


async def random_tokens(target: AttackTarget) -> None:
    def requests() -> Iterator[bytes]:
        while True:
            yield build_request("GET", POD, {"Authorization": f"Bearer {secrets.token_urlsafe(32)}"})

    await target.repeat_requests(ANONYMOUS, requests(), 64, rate=TOKEN_RATE)


async def openapi(target: AttackTarget) -> None:
    await target.repeat_requests(STRANGER, repeat_forever(build_request("GET", "/openapi/v2", {"Accept-Encoding": "gzip"})), 64)


async def refusals(target: AttackTarget) -> None:
    await target.repeat_requests(STRANGER, repeat_forever(build_request("GET", POD)), 300)


async def unread_pipeline(target: AttackTarget) -> None:
    await target.hold_connections(
        READER, build_request("GET", f"{ALL_PODS}?limit=500") * 2_000, 50, read=False, receive_buffer=1 << 12
    )


async def idle_connections(target: AttackTarget) -> None:
    await target.hold_connections(STRANGER, b"", 500, read=True)


async def stalled_headers(target: AttackTarget) -> None:
    await target.hold_connections(STRANGER, build_request("GET", POD)[:-2], 300, read=True)


async def skip_handshakes(target: AttackTarget) -> None:
    await target.hold_connections(None, b"", 1_500, read=True)


async def huge_headers(target: AttackTarget) -> None:
    many = build_request("GET", POD, {f"X-Header-{number}": "value" for number in range(50_000)})
    long = build_request("GET", POD, {"X-Header": "x" * (1 << 20)})
    await target.repeat_requests(STRANGER, repeat_forever(many, long), 8)


def build_costly_patches() -> list[bytes]:
    """Return patches at the size and depth limits. All of them are refused."""
    deep = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    test = {"op": "test", "path": "/metadata/name", "value": "another"}
    doubled = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 1000}}]
    doubled += [{"op": "copy", "from": "/metadata", "path": "/metadata/annotations/b"}] * 9_999
    directives = {"metadata": {"$patch": "merge", "finalizers": [{"$patch": "delete"}] * 50_000}}
    bodies = {
        "json-patch+json": [json.dumps([test] * 10_000).encode(), json.dumps(doubled).encode()],
        "merge-patch+json": [deep],
        "strategic-merge-patch+json": [deep, json.dumps(directives).encode()],
    }
    return [
        build_request("PATCH", POD, {"Content-Type": f"application/{kind}"}, body)
        for kind, each in bodies.items()
        for body in each
    ]


async def hostile_patches(target: AttackTarget) -> None:
    await target.repeat_requests(EDITOR, repeat_forever(*build_costly_patches()), 4)


async def gzip_bombs(target: AttackTarget) -> None:
    body = gzip.compress(b" " * (64 << 20), mtime=0)
    await target.repeat_requests(EDITOR, repeat_forever(_post_request(body, JSON | {"Content-Encoding": "gzip"})), 8)


async def alias_bombs(target: AttackTarget) -> None:
    levels = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 20)]
    body = "\n".join(["apiVersion: v1", "kind: Pod", "a0: &a0 [x]", *levels, ""]).encode()
    await target.repeat_requests(EDITOR, repeat_forever(_post_request(body, YAML)), 8)


async def exec_flood(target: AttackTarget) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
        "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
    }
    await target.repeat_requests(
        EDITOR, repeat_forever(build_request("GET", f"{POD}/exec?command=cat&stdin=true&container=main", headers)), 64
    )


_ATTACKS = (
    Attack("refused-json", "2.8 MB of JSON by a caller without a role, back to back", refused_json, ("403",), ENDS),
    Attack("refused-yaml", "0.96 MB of YAML by the same", refused_yaml, ("403",), ENDS),
    Attack("yaml-lists", "lists of all pods in YAML by a reader, back to back", yaml_lists, ("200",), (BUSY,)),
    Attack("future-lists-300", "300 lists at a future revision", future_lists(300), ("504", BUSY), (), HOLD),
    Attack("future-lists-600", "600 lists at a future revision", future_lists(600), ("504", BUSY), (), HOLD),
    Attack(
        "refused-bodies-200",
        "200 bodies of 2.9 MB that stop before their end, by a caller without a role",
        stalled_bodies(STRANGER, 200), ("403",), ENDS, HOLD,
    ),
    Attack(
        "refused-bodies-400",
        "400 bodies of the same kind",
        stalled_bodies(STRANGER, 400), ("403",), ENDS, HOLD,
    ),
    Attack(
        "stalled-bodies-200",
        "200 bodies of the same kind, by an editor",
        stalled_bodies(EDITOR, 200), ("408", BUSY, "413", CLOSED, RESET), (), HOLD,
    ),
    Attack("unread-lists", "200 lists of all pods that are never read", unread_lists, seconds=HOLD),
    Attack("random-tokens", "1,157 random bearer tokens per second", random_tokens, ("401",), ENDS, count=300),
    Attack("openapi", "/openapi/v2 with gzip, again and again", openapi, ("200",), (BUSY,)),
    Attack("refusals", "300 connections of a caller whose requests are refused", refusals, ("403",), ENDS, count=300),
    Attack("unread-pipeline", "50 connections with 2,000 requests each that read nothing", unread_pipeline, seconds=HOLD),
    Attack("idle-connections", "500 idle TLS connections", idle_connections, (), (CLOSED, RESET)),
    Attack("stalled-headers", "300 requests whose headers do not end", stalled_headers, (), (CLOSED, RESET), HOLD),
    Attack("no-handshakes", "1,500 connections without a TLS handshake", skip_handshakes, (CLOSED, RESET), (), PATIENCE, 1_500),
    Attack("huge-headers", "headers of 1 MB", huge_headers, ("400", "431", CLOSED, RESET), ()),
    Attack("hostile-patches", "patches at the limits of size and depth", hostile_patches, ("400", "413", "422"), (BUSY, "403")),
    Attack("gzip-bombs", "bodies of 64 KiB that inflate to 64 MiB", gzip_bombs, ("400", "413", "415"), ENDS),
    Attack("alias-bombs", "YAML whose aliases multiply", alias_bombs, ("400",), (BUSY,)),
    Attack("exec-flood", "exec of a pod that does not run, on 64 connections", exec_flood, ("400", "101"), (BUSY,)),
)  # fmt: skip
ATTACKS = {attack.name: attack for attack in _ATTACKS}
