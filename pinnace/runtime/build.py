"""Which build of Pinnace this is.

In a git checkout, including an editable install, git is asked for the commit once per process; components do so when they
start. Wheels and sdists contain the commit from which they were built (hatch_build.py). A build without git has a version only.
"""

import os
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

BAKED = Path(__file__).with_name("commit.txt")
"""In wheels and sdists."""


@cache
def version() -> str:
    """Such as "0.1.0+73b2091", "0.1.0+73b2091-dirty" or "0.1.0"."""
    number = metadata.version("pinnace")
    return f"{number}+{made_from}" if (made_from := commit()) else number


@cache
def commit() -> str:
    """The commit of these sources, such as "73b2091", with "-dirty" if they have uncommitted changes; "" if it is not known."""
    root = Path(__file__).parents[2]
    if (root / ".git").exists():
        return _described(root)
    return BAKED.read_text().strip() if BAKED.exists() else ""


def _described(root: Path) -> str:
    try:
        described = subprocess.run(
            ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=root, env=_elsewhere(), capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return described.stdout.strip()


def _elsewhere() -> dict[str, str]:
    """The environment without git's own variables: in a git hook they name the hook's repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
