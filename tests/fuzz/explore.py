"""Grows the corpus: an input that makes the API server run a line of code that no other has run is kept.

    python -m tests.fuzz.explore --seconds 60 --seed 1

It runs in-process, before a storage in memory, without a transport: what is looked for are lines, not faults. Of what is
there already, first what still reaches something is kept, so that the corpus does not grow for ever.
"""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.methods import Method
from tests.fuzz.inputs import CORPUS, Input, read, write
from tests.fuzz.offspring import Offspring
from tests.unit.auth.matrix import PEOPLE, Caller, serving

_ROOT = Path(__file__).parents[2]
_WATCHED = (str(_ROOT / "apiserver"), str(_ROOT / "pinnace" / "api"))
MAX_KEPT = 3000
"""Bytes of an input that is kept."""
PATIENCE = 0.2


class Lines:
    """The lines of the API server that have run so far."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()

    def __enter__(self) -> "Lines":
        sys.settrace(self._called)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._ran if frame.f_code.co_filename.startswith(_WATCHED) else None

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._ran


async def explore(seconds: float, seed: int) -> None:
    rng, lines, kept = random.Random(seed), Lines(), list[Input]()
    offspring = Offspring(kept)
    async with serving() as assembly:
        with lines:
            await asyncio.sleep(1.0)  # what the server does anyhow

        async def offer(candidate: Input) -> None:
            before = len(lines.seen)
            with lines:
                await play(assembly, candidate)
            if len(lines.seen) > before and sum(map(len, candidate.messages)) <= MAX_KEPT:
                kept.append(candidate)

        for candidate in (*(offspring.sound(rng, path) for path in offspring.methods), *read(CORPUS)):
            await offer(candidate)
        known, end = len(kept), time.monotonic() + seconds
        tried = 0
        while time.monotonic() < end:
            await offer(offspring.spoiled(rng))
            tried += 1
    write(kept, CORPUS)
    print(f"{tried} inputs tried; {len(lines.seen)} lines run; {len(kept)} inputs kept, {len(kept) - known} of them new")


async def play(assembly: Assembly, candidate: Input) -> None:
    """As the administrator; whatever comes of it."""
    method = assembly.methods.get(candidate.path)
    if method is None:  # of an API that there was
        return
    with suppress(Rejected, TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await _call(method, [method.parse(message) for message in candidate.messages])


async def _call(method: Method, requests: Sequence[Any]) -> None:
    caller = Caller(PEOPLE["admin"])
    if not method.server_streaming:
        await method.call(requests[0], caller)
        return
    async with aclosing(method.stream(_saying(requests) if method.client_streaming else requests[0], caller)) as responses:
        async for _ in responses:
            if not method.client_streaming:
                break


async def _saying(requests: Sequence[Any]) -> AsyncIterator[Any]:
    for request in requests:
        yield request
        await asyncio.sleep(0)


@click.command()
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(seconds: float, seed: int) -> None:
    """Looks for inputs that reach what no other has reached, and keeps them in tests/fuzz/corpus."""
    asyncio.run(explore(seconds, seed))


if __name__ == "__main__":
    main()
