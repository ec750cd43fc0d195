"""Text on a terminal that is drawn in place, again and again."""

import asyncio
from collections.abc import Callable


class LiveText:
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
        """Draws until cancelled; the last drawing stays. Returns, with nothing drawn any more, once the text has more lines
        than the screen: what has scrolled off cannot be drawn over, and what is cut off nobody would see."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(highlight=False)

        def fitting() -> Text | None:
            text = self._text().rstrip("\n")
            return Text(text, no_wrap=True) if text.count("\n") < console.height else None

        if fitting() is None:
            return
        with Live(console=console, auto_refresh=False) as live:
            while True:
                self._changed.clear()
                text = fitting()
                if text is None:
                    live.transient = True  # what is drawn goes with it
                    return
                live.update(text, refresh=True)
                await asyncio.sleep(self.INTERVAL)
                try:
                    async with asyncio.timeout(self.REFRESH):
                        await self._changed.wait()
                except TimeoutError:
                    continue
