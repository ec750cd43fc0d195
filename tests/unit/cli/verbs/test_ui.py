"""`pinnace ui --terminal` says what is missing before it connects."""

import pytest

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.verbs import ui


def test_without_textual_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "find_spec", lambda name: None)
    with pytest.raises(Failure, match="Textual is not installed") as caught:
        ui._check_terminal(None)
    assert "pinnace[ui]" in caught.value.report.hint


@pytest.mark.parametrize(("opens", "message"), [(True, "--open cannot be used"), (None, "must be a terminal")])
def test_options_and_pipes_that_cannot_work_are_refused(
    opens: bool | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ui, "find_spec", lambda name: object())
    with pytest.raises(Failure, match=message) as caught:
        ui._check_terminal(opens)
    assert caught.value.report.code is ExitCode.USAGE
