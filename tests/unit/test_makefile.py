"""The output of `make help` in a pipe and on a terminal, and `make clean`."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
HELP = ["make", "--no-print-directory", "help"]
PATHS = {"PATH": os.environ["PATH"]}


def test_help_in_a_pipe_has_plain_columns() -> None:
    text = subprocess.run(HELP, cwd=ROOT, env=PATHS, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in text
    assert {line.index(line.split(maxsplit=1)[1]) for line in text.splitlines()} == {17}


@pytest.mark.parametrize(("environment", "bold"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_terminal_help_is_colored_unless_disabled(environment: dict[str, str], bold: bool) -> None:
    ours, theirs = os.openpty()
    try:
        subprocess.run(HELP, cwd=ROOT, env=PATHS | environment, stdout=theirs, check=True)
        assert (b"\x1b[1m" in os.read(ours, 1 << 10)) == bold
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("installed", [True, False])
def test_clean_keeps_an_environment_that_setup_did_not_create(tmp_path: Path, installed: bool) -> None:
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "pyvenv.cfg").touch()
    if installed:
        (tmp_path / ".venv" / ".installed").touch()
    done = subprocess.run(["make", "clean"], cwd=tmp_path, env=PATHS, capture_output=True, text=True, check=False)
    assert (done.returncode == 0, (tmp_path / ".venv").exists()) == (installed, not installed)
    assert installed or "remove it by hand" in done.stderr
