"""An interrupt before there is anything to interrupt."""

import subprocess
import sys
from textwrap import dedent

import pytest

from pinnace.cli.outcomes import ExitCode

ENTRY = "from pinnace.cli.entry import main; main()"
INTERRUPTING = """
    import os, signal, sys

    class Interrupting:
        '''An interrupt comes as soon as {module} is imported.'''
        def find_spec(self, name, path=None, target=None):
            if name == {module!r}:
                os.kill(os.getpid(), signal.SIGINT)

    sys.meta_path.insert(0, Interrupting())
    {begin}
"""


def interrupted(module: str, begin: str = "") -> subprocess.CompletedProcess[str]:
    program = dedent(INTERRUPTING).format(module=module, begin=begin) + ENTRY
    command = [sys.executable, "-c", program, "--version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("module", ["click", "pinnace.cli.main", "pinnace.cli.terminal.streams", "pinnace.cli.verbs.version"])
def test_it_is_quiet_while_it_is_imported(module: str) -> None:
    done = interrupted(module)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (ExitCode.INTERRUPTED, "", "")


def test_who_is_not_to_be_interrupted_is_not() -> None:
    done = interrupted("click", "signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Client Version: ")
