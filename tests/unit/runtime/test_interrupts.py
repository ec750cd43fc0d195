"""An interrupt of a component before it runs. For the command `pinnace`, see tests/unit/cli/test_entry.py."""

import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from textwrap import dedent

import pytest

from pinnace.cluster import certificates
from pinnace.runtime.interrupts import INTERRUPTED

pytestmark = pytest.mark.processes

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
PROGRAMS: dict[str, str] = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]
"""The entry points by name, as "module:function"."""
COMPONENTS = [name.removeprefix("pinnace-") for name in PROGRAMS if name != "pinnace"]
INTERRUPTING = """
    import os, signal, sys

    class Interrupting:
        '''An interrupt comes as soon as {module} is imported.'''
        def find_spec(self, name, path=None, target=None):
            if name == {module!r}:
                os.kill(os.getpid(), signal.SIGINT)

    sys.meta_path.insert(0, Interrupting())
    sys.argv = {argv!r}
    exec({begin!r})
    from {package} import {function}
    {function}()
"""
RUNNING = """
import pinnace.{component}.main as program
program.process.run_component = lambda main, **options: os.kill(os.getpid(), signal.SIGINT)
"""
SERVING = """
import pinnace.{component}.main as program
async def serve(stop, *others):
    os.kill(os.getpid(), signal.SIGINT)
    await stop.wait()
    print("stopped")
program.serve = serve
"""
IGNORED = "signal.signal(signal.SIGINT, signal.SIG_IGN)"


def interrupted(name: str, module: str, *arguments: str, begin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program of this name. `begin` or the import of the module interrupts it."""
    package, _, function = PROGRAMS[name].partition(":")
    parts = {"module": module, "argv": [name, *arguments], "package": package, "function": function}
    code = dedent(INTERRUPTING).format(**parts, begin=begin)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)


@cache
def _serving() -> tuple[str, ...]:
    """The options of a server with certificates."""
    folder = Path(mkdtemp())
    certificates.create_certificates(folder, ["127.0.0.1:1"], {})
    shown = certificates.component_files(folder, "apiserver")
    return "--tls-cert-file", str(shown.cert), "--tls-private-key-file", str(shown.key), "--client-ca-file", str(shown.ca)


def started(component: str, begin: str) -> subprocess.CompletedProcess[str]:
    """Start the component with the minimum of options."""
    needed: tuple[str, ...] = ("--insecure",) if component == "apiserver" else ("--server", "127.0.0.1:1")
    needed += _serving() if component == "gateway" else ()
    return interrupted(f"pinnace-{component}", "", *needed, "--http", "127.0.0.1:0", begin=begin.format(component=component))


@pytest.mark.parametrize("module", ["asyncio", "prometheus_client"])
@pytest.mark.parametrize("component", COMPONENTS)
def test_interrupt_during_import_is_silent(component: str, module: str) -> None:
    done = interrupted(f"pinnace-{component}", module)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


@pytest.mark.parametrize("component", COMPONENTS)
def test_interrupt_before_the_start_is_silent(component: str) -> None:
    done = started(component, RUNNING)
    assert (done.returncode, done.stdout) == (INTERRUPTED, "")
    (version,) = done.stderr.splitlines()
    assert f": pinnace-{component} " in version


@pytest.mark.parametrize("component", COMPONENTS)
def test_interrupt_after_the_start_stops_gracefully(component: str) -> None:
    done = started(component, SERVING)
    assert (done.returncode, done.stdout) == (0, "stopped\n")


@pytest.mark.parametrize("component", COMPONENTS)
def test_ignored_sigint_stays_ignored(component: str) -> None:
    """A shell ignores SIGINT for its background jobs."""
    done = interrupted(f"pinnace-{component}", "click", "--help", begin=IGNORED)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Usage: ")
