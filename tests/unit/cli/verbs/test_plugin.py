"""`pinnace plugin`: a new plugin passes, and a mistake is an exit code with its message."""

from pathlib import Path

import pytest

from pinnace.cli.main import run_command_line
from pinnace.cli.outcomes import ExitCode


def test_new_plugin_passes_and_a_mistake_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    assert run_command_line(["plugin", "new", "FullestFirst", "--dir", str(folder)]) == ExitCode.OK
    assert run_command_line(["plugin", "new", "FullestFirst", "--dir", str(folder)]) == ExitCode.USAGE
    source = folder / "fullest_first.py"
    assert run_command_line(["plugin", "test", str(source), "--trials", "2"]) == ExitCode.OK
    assert "FullestFirst: 104 pairs of pod and node" in capsys.readouterr().out
    source.write_text(source.read_text().replace("np.minimum(100 * used", "np.minimum(90 * used"))
    assert run_command_line(["plugin", "test", str(source), "--trials", "2"]) == ExitCode.VERDICT
    assert "score gives" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.py"], ExitCode.INVALID, "missing.py: cannot be read"),
        (["x:Y", "--args", "["], ExitCode.USAGE, "--args: expected JSON"),
        (["x:Y", "--args", "3"], ExitCode.USAGE, "--args: expected a JSON object"),
        (["x:Y", "--label", "disk"], ExitCode.USAGE, "--label: expected KEY=VALUE"),
    ],
    ids=["file", "json", "object", "label"],
)
def test_wrong_arguments_are_named(
    arguments: list[str], code: ExitCode, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["plugin", "test", *arguments]) == code
    assert message in capsys.readouterr().err
