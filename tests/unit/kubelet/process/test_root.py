"""Removal of the folders of pods, with files that are difficult to remove."""

import asyncio
import errno
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pinnace.kubelet.runtime.process import files, root
from pinnace.kubelet.runtime.process.root import RuntimeRoot, remove_pod, reset_root
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.unit.kubelet.process.scene import FOR_EVER, TIMEOUT, UID, Scene, eventually, exists, shell
from tests.unprivileged import read_only, unprivileged


def a_pod(root: RuntimeRoot) -> Path:
    """A pod without containers. Its folder and a directory in a volume are read-only."""
    pod = root.pod_directory("uid")
    read_only(pod / "volumes")
    pod.chmod(0o555)
    return pod


async def test_removed_pod_leaves_no_files() -> None:
    with unprivileged() as folder:
        root = RuntimeRoot(folder / "root")
        await remove_pod(root.move_to_removed(a_pod(root)), SYSTEM_CLOCK, asyncio.Lock())
        assert (root.pod_directories(), root.removed_pod_directories()) == ([], [])
        root.close()


def test_reset_leaves_no_files() -> None:
    with unprivileged() as folder:
        root = RuntimeRoot(folder / "root")
        a_pod(root)
        root.close()
        reset_root(folder / "root")
        assert list(folder.iterdir()) == []


def test_reset_rejects_a_folder_of_another_origin(tmp_path: Path) -> None:
    """Regression: any given folder was removed."""
    (tmp_path / "pods").mkdir()
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(OSError, match=r"not the directory of a process runtime: it contains thesis\.tex"):
        reset_root(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pods", "thesis.tex"]


@pytest.mark.processes
@pytest.mark.parametrize("by", ["reset", "removal"])
async def test_processes_are_killed_on_a_full_disk(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: shims received the request to kill in a file. On a full disk `pinnace down` failed, and the processes of
    a removed pod continued.
    """

    def full(path: str, record: Mapping[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    scene = Scene(tmp_path / "root")
    scene.run(shell(f"setsid sh -c 'echo daemon $$$$; {FOR_EVER}' & {FOR_EVER}"))
    await eventually(lambda: bool(scene.log()))
    await scene.running()
    shim, running = scene.shim(), (scene.pid(), int(scene.log()[0].split()[-1]))
    assert all(map(exists, running))
    monkeypatch.setattr(files, "write_record", full)
    try:
        if by == "removal":
            scene.runtime.remove(UID)
            await scene.runtime.settled()
        scene.root.close()
        if by == "reset":
            reset_root(scene.folder)
        assert not any(map(exists, running))
    finally:
        if exists(shim):
            os.kill(shim, signal.SIGKILL)


@pytest.mark.processes
async def test_older_shim_receives_requests_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal would end an older shim, and its processes would continue."""
    scene = Scene(tmp_path / "root")
    scene.run(shell(f"setsid sh -c 'echo daemon $$$$; {FOR_EVER}' & {FOR_EVER}"))
    await eventually(lambda: bool(scene.log()))
    await scene.running()
    running = (scene.pid(), int(scene.log()[0].split()[-1]))
    monkeypatch.setattr(root, "_handles_signal", lambda folder, number: False)
    monkeypatch.setattr(files, "KILL", None)  # sending the signal would fail
    scene.runtime.remove(UID)
    await scene.runtime.settled()
    assert not any(map(exists, running))
    scene.root.close()


@pytest.mark.processes
async def test_starting_shim_is_killed(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "root")
    scene.run(shell(FOR_EVER))
    scene.runtime.remove(UID)
    async with asyncio.timeout(TIMEOUT):
        await scene.runtime.settled()
    assert scene.root.removed_pod_directories() == []
    scene.root.close()


async def test_remaining_files_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", f"{path}/file")

    root = RuntimeRoot(tmp_path / "root")
    left = root.move_to_removed(a_pod(root))
    monkeypatch.setattr("pinnace.kubelet.runtime.process.root.remove_tree", refuse)
    await remove_pod(left, SYSTEM_CLOCK, asyncio.Lock())
    assert f"{left}/file" in caplog.text
    root.close()


@pytest.mark.parametrize(("uid", "container"), [("..", "c"), ("../secret", "c"), ("uid", "../../x"), ("", "c"), ("uid", "a\0")])
def test_uid_and_container_name_cannot_escape_the_root(tmp_path: Path, uid: str, container: str) -> None:
    """A client requests a log by the uid of a pod and the name of a container."""
    root = RuntimeRoot(tmp_path / "root")
    for outside in ("secret", "root/secret", "root/pods/c", "root/pods/x"):
        (tmp_path / outside / "containers" / "c" / "0").mkdir(parents=True)
        (tmp_path / outside / "0").mkdir()
    (tmp_path / "root" / "pods" / "uid" / "containers" / "c" / "1").mkdir(parents=True)
    assert root.attempt_directories(uid, container) == []
    assert len(root.attempt_directories("uid", "c")) == 1
    root.close()
