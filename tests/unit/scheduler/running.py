"""A part that runs beside a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import pytest


class Runs(Protocol):
    async def run(self) -> None: ...


@asynccontextmanager
async def running(part: Runs) -> AsyncIterator[None]:
    """It must not have ended by itself."""
    task = asyncio.ensure_future(part.run())
    yield
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
