"""The links of a cluster: a proxy for each pair of processes that talk to each other, all in one process of their own, so that
a busy load generator does not slow them.

The wiring of a cluster is decided when it is planned, and the links listen before that: so no address is in danger of being
somebody else's, and a process that is started again finds its links where they were.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack
from typing import Any, Self

import click

from pinnace.cluster.helper import Helper
from pinnace.cluster.ports import Ports
from pinnace.cluster.proxy import Mode, Proxy
from pinnace.runtime import process

Link = tuple[str, str]
"""(source, target): the names of the processes; the source connects."""


class Links:
    """An async context manager. `wire` is the Wiring for a cluster's fittings."""

    def __init__(self, count: int) -> None:
        """`count`: how many links there will be at most."""
        self._helper = Helper("pinnace.cluster.links", "--count", str(count))
        self._free: list[str] = []
        self._addresses: dict[Link, str] = {}

    async def __aenter__(self) -> Self:
        await self._helper.__aenter__()
        self._free = await self._helper.ask("addresses")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._helper.__aexit__(*error)

    @property
    def all(self) -> list[Link]:
        return list(self._addresses)

    def wire(self, source: str, target: str, address: str) -> str:
        """The address that is `target`'s for `source`, from now on. Raises IndexError when all links are in use."""
        link = (source, target)
        if link not in self._addresses:
            self._addresses[link] = self._free.pop()
        self._tell("connect", [link], target=address)
        return self._addresses[link]

    async def set(
        self, links: Iterable[Link], requests: Mode | None = None, answers: Mode | None = None, delay: float = 0.0
    ) -> None:
        """Changes how they treat requests (from source to target) and answers, from now on. None: as it was."""
        await self._tell("set", links, requests=requests, answers=answers, delay=delay)

    async def reset(self, links: Iterable[Link]) -> None:
        """Breaks their connections."""
        await self._tell("reset", links)

    async def refuse(self, links: Iterable[Link]) -> None:
        """They take no new connections, until `accept`. Those that are there stay."""
        await self._tell("refuse", links)

    async def accept(self, links: Iterable[Link]) -> None:
        await self._tell("accept", links)

    async def heal(self) -> None:
        """All links are as they were at first."""
        await self.accept(self.all)
        await self.set(self.all, Mode.PASS, Mode.PASS)

    def _tell(self, do: str, links: Iterable[Link], **fields: Any) -> Awaitable[Any]:
        return self._helper.tell(do, links=[self._addresses[link] for link in links], **fields)


class _Board:
    """The proxies, by their addresses, and what can be asked of them."""

    def __init__(self, proxies: Iterable[Proxy]) -> None:
        self._proxies = {proxy.endpoint: proxy for proxy in proxies}

    async def addresses(self) -> list[str]:
        return list(self._proxies)

    async def connect(self, links: list[str], target: str) -> None:
        for link in links:
            self._proxies[link].target = target

    async def set(self, links: list[str], requests: str | None, answers: str | None, delay: float) -> None:
        for link in links:
            proxy = self._proxies[link]
            for lane, mode in ((proxy.requests, requests), (proxy.answers, answers)):
                if mode is not None:
                    lane.set(Mode(mode), delay)

    async def reset(self, links: list[str]) -> None:
        for link in links:
            self._proxies[link].reset()

    async def refuse(self, links: list[str]) -> None:
        for link in links:
            self._proxies[link].refuse()

    async def accept(self, links: list[str]) -> None:
        for link in links:
            await self._proxies[link].accept()


@click.command()
@click.option("--count", type=click.IntRange(min=1), required=True, help="How many links.")
def main(count: int) -> None:
    """Holds links, and does with them as it is told on stdin."""
    asyncio.run(_serve(count))


async def _serve(count: int) -> None:
    ports = Ports()
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy("", f"127.0.0.1:{ports.next()}")) for _ in range(count)]
        board = _Board(proxies)
        commands = (board.addresses, board.connect, board.set, board.reset, board.refuse, board.accept)
        await process.serve({command.__name__: command for command in commands})


if __name__ == "__main__":
    main()
