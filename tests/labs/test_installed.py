"""The labs are part of the wheel: `pinnace lab` works without a checkout."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinnace.verification.labs.document import list_lab_texts

pytestmark = [pytest.mark.labs, pytest.mark.timeout(280)]
ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The executable of a new virtual environment that contains the wheel. Its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([*PIP, "wheel", "--no-deps", "-w", folder, ROOT], check=True, timeout=200)
    (wheel,) = folder.glob("pinnace-*.whl")
    venv.create(folder / "venv", with_pip=False)
    subprocess.run([*PIP, "--python", folder / "venv", "install", "--no-deps", wheel], check=True, timeout=60)
    yield folder / "venv" / "bin" / "pinnace"


def run(installed: Path, folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the output, in an empty folder, with an empty home."""
    own = {"HOME": str(folder), "XDG_STATE_HOME": str(folder), "PYTHONPATH": sysconfig.get_paths()["purelib"]}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PINNACE_", "XDG_", "PYTHON"))}
    done = subprocess.run(
        [installed, *arguments], cwd=folder, env=kept | own, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_wheel_contains_all_labs(installed: Path, tmp_path: Path) -> None:
    code, out = run(installed, tmp_path, "lab", "list")
    assert code == 0, out
    assert [int(line.split()[0]) for line in out.splitlines()[1:]] == list(list_lab_texts())

    code, out = run(installed, tmp_path, "lab", "start", "4")
    assert code == 0, out
    (path,) = [Path(line.split()[1]) for line in out.splitlines() if line.split()[:1] == ["text"]]
    assert path.is_relative_to(installed.parents[1]), "this is the text of the checkout"
    assert path.read_text() == list_lab_texts()[4].read_text()


def test_hint_of_the_wheel_needs_no_cluster(installed: Path, tmp_path: Path) -> None:
    code, out = run(installed, tmp_path, "lab", "hint", "4")
    assert code == 0, out
    assert "hint: Run `pinnace up --detach --data-dir lab-4 --nodes 3 --pods 1000`." in out
