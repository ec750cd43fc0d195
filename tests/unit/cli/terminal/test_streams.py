"""What a command makes of the standard streams that it is given, as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinnace.cli.outcomes import ExitCode

pytestmark = pytest.mark.processes

FULL = Path("/dev/full")
C_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def pinnace(redirected: str, *, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Arguments and redirections, as a shell reads them."""
    return subprocess.run(
        ["bash", "-c", f'exec "{sys.executable}" -m pinnace.cli.main {redirected}'],
        env={**os.environ, **(environment or {})}, capture_output=True, timeout=30, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("verb", ["api-resources", "--help", "version --client"])
def test_a_disk_that_is_full_is_no_bug(verb: str) -> None:
    """Whoever writes: the verb, click, or the flush at the end."""
    done = pinnace(f"{verb} > {FULL}")
    assert done.returncode == ExitCode.OUTPUT == 7
    assert done.stderr.decode().splitlines() == [
        "error: cannot write the output: no space left on device",
        "hint: changes made so far remain",
    ]


def test_an_output_that_is_closed_is_not_wanted() -> None:
    assert pinnace("api-resources >&-").returncode == 0
    assert pinnace("api-resources <&- >&- 2>&-").returncode == 0
    assert pinnace("api-resources 2>&-").stdout.startswith(b"NAME ")


def test_unprintable_error_sets_the_exit_code() -> None:
    assert pinnace(f"nosuchverb 2> {FULL}").returncode == pinnace("nosuchverb 2>&-").returncode == ExitCode.USAGE
    assert pinnace(f"api-resources 2> {FULL} > {FULL}").returncode == ExitCode.OUTPUT


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, C_LOCALE], ids=["told", "C"])
def test_texts_are_utf_8_whatever_the_locale(environment: dict[str, str], tmp_path: Path) -> None:
    """Or what `get -o yaml` writes would be read back as something else."""
    done = pinnace(f"down --data-dir {tmp_path}/Grüße", environment={**environment, "KUBECONFIG": f"{tmp_path}/config"})
    assert done.stdout.decode() == f"there is no cluster in {tmp_path}/Grüße: nothing to do\n"


def test_a_file_name_is_written_as_it_is(tmp_path: Path) -> None:
    done = pinnace(f"down --data-dir {tmp_path}/$'\\xff'", environment={"KUBECONFIG": f"{tmp_path}/config"})
    assert b"/\xff: nothing to do" in done.stdout


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, C_LOCALE], ids=["told", "C"])
def test_manifests_are_utf_8_whatever_the_locale(environment: dict[str, str]) -> None:
    done = pinnace("apply -f - <<< '{kind: Grüße, apiVersion: v1}'", environment=environment)
    assert "Grüße" in done.stderr.decode()
    done = pinnace("apply -f - <<< $'\\xff'", environment=environment)
    assert done.stderr.startswith(b"stdin:1: not valid UTF-8")


@pytest.mark.parametrize(
    ("redirected", "said"), [("<&-", "no objects in standard input"), ("0> /dev/null", "stdin: bad file descriptor")]
)
def test_manifests_from_an_input_that_cannot_be_read(redirected: str, said: str) -> None:
    done = pinnace(f"apply -f - {redirected}")
    first, hint = done.stderr.decode().splitlines()
    assert (done.returncode, first) == (ExitCode.USAGE, f"error: {said}") and hint.startswith("hint: ")


@pytest.mark.parametrize(
    "words",
    ["get pod X", "delete pod X", "annotate pod a note=X", "get pods -n X", "-n X get pods", "get pods -l X", "exec a -- X"],
)
def test_an_argument_that_is_no_text_is_a_mistake(words: str) -> None:
    done = pinnace(f"{words.replace('X', chr(36) + chr(39) + chr(92) + 'xff' + chr(39))} --server 127.0.0.1:1")
    first, hint = done.stderr.decode().splitlines()
    assert done.returncode == ExitCode.USAGE and first.endswith("is not valid Unicode") and hint.startswith("hint: ")


def test_the_locale_need_not_know_what_an_argument_says() -> None:
    assert 'unknown resource "Grüße"' in pinnace("describe Grüße", environment=C_LOCALE).stderr.decode()
