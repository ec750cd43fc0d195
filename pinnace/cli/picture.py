"""Text on a terminal that is drawn in place, again and again."""

import asyncio
from collections.abc import Callable


class Picture:
    """Text that is drawn in place, again whenever it is said to have changed and every second (ages grow)."""

    INTERVAL = 0.1
    """Seconds between two drawings, at least."""
    REFRESH = 1.0

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Draws until cancelled; the last drawing stays."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="ellipsis") as live:
            while True:
                self._changed.clear()
                live.update(Text(self._text().rstrip("\n"), no_wrap=True), refresh=True)
                await asyncio.sleep(self.INTERVAL)
                try:
                    async with asyncio.timeout(self.REFRESH):
                        await self._changed.wait()
                except TimeoutError:
                    continue
