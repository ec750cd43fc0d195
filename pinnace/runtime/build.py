"""The version and commit of this build.

In a git checkout, including an editable install, the commit is read from git once per process. Wheels and sdists contain the
commit of their build (hatch_build.py). Without git, a build has only a version.
"""

import os
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

BAKED = Path(__file__).with_name("commit.txt")
"""The file with the commit in wheels and sdists."""


@cache
def build_version() -> str:
    """Return the version and commit, for example "0.1.0+73b2091", "0.1.0+73b2091-dirty" or "0.1.0"."""
    number = metadata.version("pinnace")
    return f"{number}+{made_from}" if (made_from := build_commit()) else number


@cache
def build_commit() -> str:
    """Return the commit of the sources, for example "73b2091", or "" if it is unknown. "-dirty" marks uncommitted changes."""
    root = Path(__file__).parents[2]
    if (root / ".git").exists():
        return _describe_commit(root)
    return BAKED.read_text().strip() if BAKED.exists() else ""


def _describe_commit(root: Path) -> str:
    try:
        described = subprocess.run(
            ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=root, env=_environment_without_git(), capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return described.stdout.strip()


def _environment_without_git() -> dict[str, str]:
    """Return the environment without git's variables, which refer to another repository inside a git hook."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
