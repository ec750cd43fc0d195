"""Inputs: what is sent to one method; and those that are kept.

corpus/ has what has reached something new, found/ what a server has minded.

A file has the inputs of one service, one a line:

    <method> <message> [<message> ...]      each message in base64, of what zlib makes of it
"""

import base64
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.verification.chaos.hostile_pods import HOSTILE

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path(__file__).parent / "found"
HOSTILE_ITEMS = 2_400
"""Of a hostile pod: with their parts, as many as the API server takes of most kinds."""


class Input(NamedTuple):
    """`path` is the method's; a stream of requests has any number of messages, all others one."""

    path: str
    messages: tuple[bytes, ...]


def kept() -> Sequence[Input]:
    """All of them, and each kind of hostile pod."""
    return [*read(FOUND), *read(CORPUS), *(hostile(kind) for kind in HOSTILE)]


def hostile(kind: str, items: int = HOSTILE_ITEMS) -> Input:
    """The creation of a pod that costs as much as a pod can (pinnace.verification.chaos.hostile_pods)."""
    name = f"hostile-{list(HOSTILE).index(kind)}-{items}"
    return Input(
        "/pinnace.v1.Pods/Create", (CreatePodRequest(object=HOSTILE[kind].create_pod(name, items=items)).SerializeToString(),)
    )


def read(folder: Path) -> Sequence[Input]:
    """In a fixed order."""
    result = []
    for file in sorted(folder.glob("*.txt")):
        for line in file.read_text("ascii").splitlines():
            method, *messages = line.split(" ")
            result.append(
                Input(f"/{file.stem}/{method}", tuple(zlib.decompress(base64.b64decode(message)) for message in messages))
            )
    return result


def write(inputs: Iterable[Input], folder: Path) -> None:
    """In place of what is there."""
    services: dict[str, list[str]] = {}
    for path, messages in inputs:
        _, service, method = path.split("/")
        encoded = (base64.b64encode(zlib.compress(message, 9)).decode() for message in messages)
        services.setdefault(service, []).append(" ".join((method, *encoded)))
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.txt"):
        file.unlink()
    for service, lines in services.items():
        (folder / f"{service}.txt").write_text("\n".join(sorted(lines)) + "\n", "ascii")
