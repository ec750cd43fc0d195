"""Processes of the fork server, in place of components."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pinnace.runtime import procfs

pytestmark = pytest.mark.processes
PATIENCE = 20.0
COMPONENT = """
import os, sys, time

def main(args, prog_name):
    print("component", args, os.environ.get("ADDED"), os.environ.get("REMOVED"), os.getcwd(), flush=True)
    if args == ["fail"]:
        sys.exit(3)
    time.sleep(60)
"""
SERVER = """
import os, sys
from pathlib import Path
from pinnace.testing import forkserver

forkserver.FORKED = ("component",)
server = forkserver.ForkServer()
folder = Path(sys.argv[1])
environment = {name: value for name, value in os.environ.items() if name != "REMOVED"} | {"ADDED": "yes"}
with (folder / "log").open("wb") as log:
    failing = server.launch([sys.executable, "-m", "component", "fail"], log, folder, environment)
    print(failing.wait(), flush=True)
    children = [
        server.launch([sys.executable, "-m", "component"], log, folder, environment),
        server.launch(["sleep", "60"], log, folder, environment),
    ]
print(*(child.pid for child in children), flush=True)
input()
children[0].kill()
print(children[0].wait(), flush=True)
input()
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_forked_component_is_child_that_dies_with_server(tmp_path: Path) -> None:
    """A component has its arguments, environment, folder and exit code as if it had been executed."""
    (tmp_path / "component.py").write_text(COMPONENT)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "REMOVED": "yes"}
    command = [sys.executable, "-c", SERVER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "3\n"
        component, executed = map(int, server.stdout.readline().split())
        until(lambda: (tmp_path / "log").read_text().count("component [") == 2)
        assert (tmp_path / "log").read_text().splitlines() == [
            f"component ['fail'] yes None {tmp_path}",
            f"component [] yes None {tmp_path}",
        ]
        server.stdin.write("\n")
        server.stdin.flush()
        assert server.stdout.readline() == f"{-signal.SIGKILL}\n"
        assert procfs.identify_process(component) is None
        assert procfs.identify_process(executed)
        server.kill()
        until(lambda: procfs.identify_process(executed) is None)
