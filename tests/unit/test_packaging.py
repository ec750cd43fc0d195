"""The image is built from the files that the wheel needs."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_docker_gets_everything_that_the_wheel_contains() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel.get("force-include", {})}
    sent = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert needed <= sent
