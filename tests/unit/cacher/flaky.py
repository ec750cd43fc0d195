"""A storage that goes away, breaks its watches or lets them fall silent, on command."""

import asyncio
from collections.abc import AsyncGenerator

from pinnace.apiserver.storage.interface import ChangeBatch, KeyPage, StorageUnavailable
from tests.storage.memory import MemoryStorage


class FlakyStorage(MemoryStorage):
    """`away`: nothing answers. `silent`: watches live but tell nothing, never again. `reads` counts current_revision, `watches`
    the watches that were begun."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = False
        self.reads = 0
        self.watches = 0
        self.watching = asyncio.Event()
        self.broken = asyncio.Event()
        self._back = asyncio.Event()
        self._back.set()

    @property
    def away(self) -> bool:
        return not self._back.is_set()

    def leave(self) -> None:
        """From now on nothing answers, and watches break."""
        self._back.clear()
        self.break_watches()

    def come_back(self) -> None:
        self._back.set()

    def restore(self, backup: MemoryStorage) -> None:
        """While it is away, its data is replaced by what is in the other."""
        vars(self).update({name: value for name, value in vars(backup).items() if name not in ("_clock", "_watchers")})

    def break_watches(self) -> None:
        self.broken.set()
        self.broken = asyncio.Event()

    async def current_revision(self) -> int:
        self._check()
        self.reads += 1
        return await super().current_revision()

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        self._check()
        return await super().page(prefix, after=after, limit=limit, revision=revision)

    async def watch(self, start_revision: int) -> AsyncGenerator[ChangeBatch]:
        self._check()
        self.watches += 1
        broken = asyncio.ensure_future(self.broken.wait())
        inner = super().watch(start_revision)
        step: asyncio.Future[ChangeBatch] | None = None
        mute = False
        try:
            while True:
                step = asyncio.ensure_future(anext(inner))
                self.watching.set()
                await asyncio.wait((step, broken), return_when=asyncio.FIRST_COMPLETED)
                if broken.done():
                    raise StorageUnavailable("the watch broke")
                told = step.result()
                mute = mute or self.silent
                if not mute:
                    yield told
        finally:
            self.watching.clear()
            broken.cancel()
            if step is not None:
                step.cancel()
                await asyncio.wait((step,), timeout=1)
            await inner.aclose()

    def _check(self) -> None:
        if self.away:
            raise StorageUnavailable("no connection")
