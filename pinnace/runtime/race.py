"""Running several things until the first of them ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def race(*contenders: Coroutine[Any, Any, Any]) -> None:
    """Runs all of them; when one ends, cancels the others and waits for them. Raises what the first one raised."""
    tasks = [asyncio.ensure_future(contender) for contender in contenders]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
