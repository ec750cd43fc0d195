"""The operators in examples/operators, with their own tests, as their authors run them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.clients
OPERATORS = Path(__file__).parents[2] / "examples" / "operators"
NEEDED = {"kopf": "kopf", "kr8s": "kr8s", "program": "kubernetes", "webhooks": "kubernetes"}


def test_every_operator_is_run() -> None:
    assert {path.name for path in OPERATORS.iterdir() if path.is_dir()} == NEEDED.keys()


@pytest.mark.parametrize("name", NEEDED)
def test_example_passes(name: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDED[name], reason="pip install '.[dev,clients]'")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, f"--pinnace-data-dir={tmp_path}"], cwd=OPERATORS / name, env=environment,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.iterdir())
