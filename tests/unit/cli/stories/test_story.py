"""How a story is laid out."""

import pytest

from pinnace.cli.local.running import Steps, StoryPrinter
from pinnace.cli.settings import Settings


def test_moments_of_any_length_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps(Settings()) as steps:
        story = StoryPrinter(Settings(), steps)
        for seconds in (0.004, 0.15, 1.15, 9.999):
            story.print_moment(seconds, "!")
    lines = capsys.readouterr().out.splitlines()
    assert len({line.index("!") for line in lines}) == 1, lines
