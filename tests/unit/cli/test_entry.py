"""SIGINT during the start of `pinnace`."""

import pytest

from pinnace.cli.outcomes import ExitCode
from tests.unit.runtime.test_interrupts import IGNORED, interrupted

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("module", ["click", "pinnace.cli.main", "pinnace.cli.terminal", "pinnace.cli.verbs.version"])
def test_interrupt_during_import_is_silent(module: str) -> None:
    done = interrupted("pinnace", module, "--version")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (ExitCode.INTERRUPTED, "", "")


def test_ignored_sigint_stays_ignored() -> None:
    done = interrupted("pinnace", "click", "--version", begin=IGNORED)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Pinnace Client Version: ")
