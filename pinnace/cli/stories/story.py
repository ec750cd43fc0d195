"""How a story is told on a terminal: chapters, lines, moments, and what is to be thought of it."""

from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from pinnace.cli.local.progress import Steps
from pinnace.cli.settings import Settings

GOOD, BAD = "green", "bold red"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One line of a verdict."""

    good: bool
    what: str
    figure: str


class Story:
    """Chapters and lines on stdout, colours only on a terminal."""

    def __init__(self, settings: Settings, steps: Steps) -> None:
        self.steps = steps
        self._console = Console(no_color=settings.no_color or None, highlight=False, soft_wrap=True)

    def chapter(self, title: str, text: str) -> None:
        self.steps.quiet()
        self._console.print(Text(f"\n{title}", style="bold"))
        self._console.print(Text(text))

    def line(self, text: str, style: str = "") -> None:
        self.steps.quiet()
        self._console.print(Text(f"  {text}" if text else "", style=style))

    def moment(self, seconds: float, what: str) -> None:
        """So long after the start, which is told as "t = 0 ms" and seven spaces: up to ten seconds are aligned."""
        self.line(f"  + {seconds * 1000:5,.0f} ms   {what}")

    def judgement(self, good: bool, what: str, figure: str, width: int = 38) -> None:
        """`width`: of the column before the figures."""
        self.line(f"{'✓' if good else '✗'} {what:<{width}}{figure}", GOOD if good else BAD)
