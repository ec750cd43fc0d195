"""The image contains the files of the wheel."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_docker_context_contains_the_files_of_the_wheel() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["only-include"], *wheel.get("force-include", {})}
    sent = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert needed <= sent
