"""What a command makes of the standard streams that it is given, as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinnace.cli.outcomes import ExitCode

pytestmark = pytest.mark.processes

FULL = Path("/dev/full")
NOTHING = "down --data-dir /nowhere"
"""A command that prints a line."""
C_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def pinnace(redirected: str, *, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Arguments and redirections, as a shell reads them."""
    return subprocess.run(
        ["bash", "-c", f'exec "{sys.executable}" -m pinnace.cli.entry {redirected}'],
        env={**os.environ, **(environment or {})}, capture_output=True, timeout=30, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("verb", [NOTHING, "--help", "version --client"])
def test_disk_that_is_full_is_no_bug(verb: str) -> None:
    """Whoever writes: the verb, click, or the flush at the end."""
    done = pinnace(f"{verb} > {FULL}")
    assert done.returncode == ExitCode.OUTPUT == 7
    assert done.stderr.decode().splitlines() == [
        "error: cannot write the output: no space left on device",
        "hint: changes made so far remain",
    ]


def test_output_that_is_closed_is_not_wanted() -> None:
    assert pinnace(f"{NOTHING} >&-").returncode == 0
    assert pinnace(f"{NOTHING} <&- >&- 2>&-").returncode == 0
    assert pinnace(f"{NOTHING} 2>&-").stdout.endswith(b"nothing to do\n")


def test_unprintable_error_sets_the_exit_code() -> None:
    assert pinnace(f"nosuchverb 2> {FULL}").returncode == pinnace("nosuchverb 2>&-").returncode == ExitCode.USAGE
    assert pinnace(f"{NOTHING} 2> {FULL} > {FULL}").returncode == ExitCode.OUTPUT


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, C_LOCALE], ids=["told", "C"])
def test_texts_are_utf_8_whatever_the_locale(environment: dict[str, str], tmp_path: Path) -> None:
    """Or documents would be read back as something else."""
    done = pinnace(f"down --data-dir {tmp_path}/Grüße", environment={**environment, "KUBECONFIG": f"{tmp_path}/config"})
    assert done.stdout.decode() == f"there is no cluster in {tmp_path}/Grüße: nothing to do\n"


def test_file_name_is_written_as_it_is(tmp_path: Path) -> None:
    done = pinnace(f"down --data-dir {tmp_path}/$'\\xff'", environment={"KUBECONFIG": f"{tmp_path}/config"})
    assert b"/\xff: nothing to do" in done.stdout


@pytest.mark.parametrize("words", ["why pod/X", "-n X why pod/a", "pod crash -l X", "etcd get X"])
def test_argument_that_is_no_text_is_a_mistake(words: str) -> None:
    done = pinnace(f"{words.replace('X', chr(36) + chr(39) + chr(92) + 'xff' + chr(39))} --server 127.0.0.1:1")
    first, hint = done.stderr.decode().splitlines()
    assert done.returncode == ExitCode.USAGE and first.endswith("is not valid Unicode") and hint.startswith("hint: ")


def test_locale_need_not_know_what_an_argument_says() -> None:
    assert 'unknown resource "Grüße"' in pinnace("why Grüße/a", environment=C_LOCALE).stderr.decode()
