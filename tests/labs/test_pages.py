"""Runs the commands of README.md and docs/, and compares the outputs that they show: `make labs`.

A block is run if each of its lines is a command, or if it begins with a command after `$ `. In outputs, `...` matches as in
the labs, and a number matches any number.
"""

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.labs.console import RETRY_INTERVAL, Command, Mismatch, Shell, environment, match

pytestmark = [pytest.mark.labs, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
PROGRAMS = ("dig", "docker-compose", "export", "kubectl", "make", "pinnace", "pinnace-kubelet", "pinnace-scheduler", "source")
PATIENCE = 20.0
"""Seconds until a command prints the shown output."""
_FENCE = re.compile(r"^```(?:console)?\n(.*?)^```$", re.M | re.S)
_NUMBER = re.compile(r"\d[\d,.]*")


@dataclass(frozen=True)
class Page:
    path: str
    setup: str = ""
    """Commands that make what the page presumes."""
    skipped: tuple[str, ...] = ()
    """Beginnings of commands that are not run here."""


FIVE_NODES = """
pinnace up --nodes 5 --detach
kubectl taint node node-3 node-4 gpu=true:NoSchedule
kubectl apply -f {pages}/why-before.yaml
kubectl wait --for=condition=Ready pod --all --timeout 30s
kubectl apply -f {pages}/web.yaml
kubectl wait --for=condition=Ready pod/web --timeout 30s
kubectl apply -f {pages}/why.yaml
kubectl wait --for=condition=PodScheduled=False pod/whale pod/shark pod/gated --timeout 30s
"""

WITH_WEB = """
pinnace up --nodes 3 --detach
kubectl create deployment web --image=web --replicas 3
kubectl rollout status deployment/web --timeout 30s
kubectl set image deployment/web web=web:2
kubectl rollout status deployment/web --timeout 30s
"""

PAGES = (
    # other tests run these: tests/compose, tests/integration/test_chaos_scenarios.py
    Page("README.md", skipped=("make", "source", "docker-compose", "pinnace chaos")),
    Page("docs/gateway.md"),
    Page(
        "docs/kubelet.md",
        "pinnace up --nodes 3 --detach && kubectl apply -f {pages}/web-0.yaml && kubectl wait --for=condition=Ready pod/web-0",
        skipped=("pinnace up --stages", "pinnace-kubelet"),
    ),
    Page(
        "docs/scheduler-plugins.md",
        "pinnace up --nodes 3 --detach",
        skipped=("pinnace-scheduler",),  # it runs until it is stopped
    ),
    Page(
        "docs/services.md",
        "pinnace up --nodes 3 --runtime process --detach",
        skipped=("dig",),  # tests/integration/test_services.py resolves names
    ),
    Page("docs/why.md", FIVE_NODES),
    Page("docs/workloads.md", WITH_WEB),
)


def commands(text: str) -> Iterator[Command]:
    for block in _FENCE.finditer(text):
        lines = block[1].splitlines()
        line = text.count("\n", 0, block.start()) + 2
        if lines and lines[0].startswith("$ "):
            command = Command(line, lines[0][2:])
            for number, each in enumerate(lines[1:], line + 1):
                if each.startswith("$ "):
                    yield command
                    command = Command(number, each[2:])
                else:
                    command.expected.append(each)
            yield command
        elif all(item.split(" ", 1)[0] in PROGRAMS for item in lines if item):
            yield from (Command(number, each) for number, each in enumerate(lines, line) if each)


def _run(shell: Shell, command: Command) -> None:
    """Raises Mismatch."""
    deadline = time.monotonic() + (PATIENCE if command.expected else 0.0)
    while True:
        output, code = shell.run(command.text, 120)
        expected = [_NUMBER.sub("0", line) for line in command.expected] or ["..."]
        if code == 0 and match(expected, _NUMBER.sub("0", output), {}) is not None:
            return
        if time.monotonic() >= deadline:
            raise Mismatch(f"line {command.line}: $ {command.text}\nexit code {code}; it printed\n{output}")
        time.sleep(RETRY_INTERVAL)  # the command reads the state of other processes: there is no event to wait for


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_commands_of_a_page_succeed_and_print_what_it_shows(page: Page) -> None:
    folder = Path(tempfile.mkdtemp(prefix="pinnace-page-"))
    environ = environment(folder) | {"XDG_STATE_HOME": str(folder / ".local" / "state")}
    work = folder / "work"
    shutil.copytree(ROOT / "examples", work / "examples")
    shell = Shell(work, environ)
    try:
        for line in page.setup.format(pages=Path(__file__).parent / "pages").strip().splitlines():
            _run(shell, Command(0, line))
        for command in commands((ROOT / page.path).read_text()):
            if not command.text.startswith(page.skipped or "\0"):
                _run(shell, command)
    finally:
        shell.close()
        subprocess.run(["pinnace", "down"], env=environ, capture_output=True, timeout=60, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def test_every_page_with_commands_is_run() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert {page.path for page in PAGES} >= {str(path.relative_to(ROOT)) for path in pages if any(commands(path.read_text()))}
