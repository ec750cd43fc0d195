"""Durations, and the global flags before and after a verb."""

from collections.abc import Iterator

import click
import pytest

from pinnace.cli.command import Verb, verb
from pinnace.cli.settings import DURATION, Settings, complete_words, global_options


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("1.5", 1.5), ("30s", 30.0), ("1m30s", 90.0), ("500ms", 0.5), ("2h", 7200.0), (" 5s ", 5.0)],
)
def test_valid_durations(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "x", "0", "0s", "-5", "5 s", "5d", "s", "1m30", "1000000h", "9" * 20, "9" * 5000])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DURATION.convert(text, None, None)


@pytest.fixture
def seen() -> Iterator[list[Settings]]:
    yield []


@pytest.fixture
def group(seen: list[Settings]) -> click.Group:
    @verb("try")
    def try_(settings: Settings) -> None:
        """Try it."""
        seen.append(settings)

    assert isinstance(try_, Verb)
    group = click.Group("pinnace", params=global_options())
    group.add_command(try_)
    return group


@pytest.mark.parametrize(
    "words",
    [
        ["-n", "x", "--timeout", "5s", "--server", "h:1", "--context", "c", "--no-color", "try"],
        ["try", "-n", "x", "--timeout", "5s", "--server", "h:1", "--context", "c", "--no-color"],
        ["-n", "x", "--timeout", "5s", "--context", "c", "try", "--server", "h:1", "--no-color"],
        ["-n", "other", "--timeout", "1s", "--context", "c", "try", "-n", "x", "--timeout=5s", "--server", "h:1", "--no-color"],
    ],
)
def test_global_flag_after_the_verb_overrides_one_before_it(group: click.Group, seen: list[Settings], words: list[str]) -> None:
    group.main(words, standalone_mode=False, obj=Settings())
    assert seen == [Settings(server="h:1", context="c", namespace="x", timeout=5.0, no_color=True)]


def test_unset_settings_are_none(group: click.Group, seen: list[Settings]) -> None:
    group.main(["try"], standalone_mode=False, obj=Settings())
    assert seen == [Settings()]


@pytest.mark.parametrize("name", ["$(reboot)", "`reboot`", "a;b", "a b", "a\nb", "*", "~", "a&b", "x>y", '"', "é", ""])
def test_completion_omits_words_with_shell_metacharacters(name: str) -> None:
    """A ClusterRole may have such a name, and the shell inserts completions unquoted."""
    assert complete_words([name, "system:kube-scheduler", "pod/web-1"], "") == ["system:kube-scheduler", "pod/web-1"]
