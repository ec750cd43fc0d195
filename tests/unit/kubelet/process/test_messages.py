"""Termination messages of containers, and the contents of their files."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinnace.kubelet.runtime.process import shim
from tests.unit.kubelet.process.scene import Scene, shell


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path / "root")
    yield scene
    await scene.close()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("script", "path", "policy", "message"),
    [
        ("printf done > dev/termination-log", "", "File", "done"),
        ('printf done > "$PINNACE_TERMINATION_MESSAGE"; exit 1', "/tmp/why", "File", "done"),
        ("echo said; exit 1", "", "File", ""),
        ("echo said; exit 1", "", "FallbackToLogsOnError", "said\n"),
        ("printf unended; exit 1", "", "FallbackToLogsOnError", "unended"),
        ("echo said", "", "FallbackToLogsOnError", ""),
        ("echo said; printf done > dev/termination-log; exit 1", "", "FallbackToLogsOnError", "done"),
        ("ln -sf /etc/hostname dev/termination-log", "", "File", ""),
    ],
    ids=["default", "path", "no-file", "log", "last-line", "no-error", "file-first", "link"],
)
async def test_exit_has_the_termination_message(scene: Scene, script: str, path: str, policy: str, message: str) -> None:
    pod = shell(script)
    pod.spec.containers[0].terminationMessagePath, pod.spec.containers[0].terminationMessagePolicy = path, policy
    scene.run(pod)
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit.message == message


@pytest.mark.processes
async def test_restart_clears_the_termination_message(scene: Scene) -> None:
    scene.run(shell("[ -e once ] || printf first > dev/termination-log; touch once"))
    view = await scene.exited()
    assert view.exit is not None
    assert view.exit.message == "first"
    scene.start("c0", 1)
    view = await scene.until(lambda view: view.attempt == 1 and view.exit is not None)
    assert view.exit is not None
    assert view.last_exit is not None
    assert (view.exit.message, view.last_exit.message) == ("", "first")


def test_message_is_limited_to_the_end_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "message"
    path.write_bytes(b"x" * 5000 + b"end")
    assert shim.read_message(str(path), 4096) == "x" * 4093 + "end"
    path.write_bytes(b"\xff" * 4096)
    assert len(shim.read_message(str(path), 4096).encode()) <= 4096


def test_termination_message_needs_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert shim.read_message(str(tmp_path / "pipe"), 10) == ""
    assert shim.read_message(str(tmp_path), 10) == ""
    assert shim.read_message(str(tmp_path / "none"), 10) == ""


def test_log_fallback_is_limited_to_80_lines_and_2048_bytes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"2026-01-01T00:00:00.000000000Z stdout F {number}\n" for number in range(100)))
    assert shim.end_of_log(str(log), 5, 4096).split() == [str(number) for number in range(20, 100)]
    log.rename(tmp_path / "log.1")
    log.write_text("2026-01-01T00:00:00.000000000Z stderr P par\n2026-01-01T00:00:00.000000000Z stderr F tial\n")
    assert shim.end_of_log(str(log), 5, 4096).endswith("98\n99\npartial\n")
    log.write_text(f"2026-01-01T00:00:00.000000000Z stdout F {'x' * 5000}\n")
    assert shim.end_of_log(str(log), 5, 4096) == "x" * 2047 + "\n"
    assert shim.end_of_log(str(log), 5, 10) == "x" * 9 + "\n"
