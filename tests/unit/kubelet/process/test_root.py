"""What becomes of the folders of pods whose files do not want to go."""

import asyncio
import errno
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kubelet.runtime.process import files, root
from kubelet.runtime.process.root import Root, remove_pod, reset
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.unit.kubelet.process.scene import FOR_EVER, PATIENCE, UID, Scene, eventually, exists, shell
from tests.unprivileged import read_only, unprivileged


def a_pod(root: Root) -> Path:
    """Without containers. One that there was has made its own folder read-only, and a directory in a volume."""
    pod = root.pod("uid")
    read_only(pod / "volumes")
    pod.chmod(0o555)
    return pod


async def test_a_pod_that_is_removed_leaves_nothing() -> None:
    with unprivileged() as folder:
        root = Root(folder / "root")
        await remove_pod(root.move_to_removed(a_pod(root)), SYSTEM_CLOCK, asyncio.Lock())
        assert (root.pods(), root.removed()) == ([], [])
        root.close()


def test_reset_leaves_nothing() -> None:
    with unprivileged() as folder:
        root = Root(folder / "root")
        a_pod(root)
        root.close()
        reset(folder / "root")
        assert list(folder.iterdir()) == []


def test_reset_removes_no_folder_that_no_kubelet_has_made(tmp_path: Path) -> None:
    """It took any folder that it was given."""
    (tmp_path / "pods").mkdir()
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(OSError, match=r"not the directory of a process runtime: it contains thesis\.tex"):
        reset(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pods", "thesis.tex"]


@pytest.mark.parametrize("by", ["reset", "removal"])
async def test_a_full_disk_does_not_keep_what_runs_alive(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shims were told by a file to kill: for want of room for it `pinnace down` failed, and what a removed pod ran went on."""

    def full(path: str, record: Mapping[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    scene = Scene(tmp_path / "root")
    scene.run(shell(f"setsid sh -c 'echo daemon $$$$; {FOR_EVER}' & {FOR_EVER}"))
    await eventually(lambda: bool(scene.log()))
    await scene.running()
    shim, running = scene.shim(), (scene.pid(), int(scene.log()[0].split()[-1]))
    assert all(map(exists, running))
    monkeypatch.setattr(files, "write", full)
    try:
        if by == "removal":
            scene.runtime.remove(UID)
            await scene.runtime.settled()
        scene.root.close()
        if by == "reset":
            reset(scene.folder)
        assert not any(map(exists, running))
    finally:
        if exists(shim):
            os.kill(shim, signal.SIGKILL)


async def test_older_shim_receives_requests_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal would be its death, and what it looks after would run on."""
    scene = Scene(tmp_path / "root")
    scene.run(shell(f"setsid sh -c 'echo daemon $$$$; {FOR_EVER}' & {FOR_EVER}"))
    await eventually(lambda: bool(scene.log()))
    await scene.running()
    running = (scene.pid(), int(scene.log()[0].split()[-1]))
    monkeypatch.setattr(root, "_heeds", lambda folder, number: False)
    monkeypatch.setattr(files, "KILL", None)  # whoever sends it fails
    scene.runtime.remove(UID)
    await scene.runtime.settled()
    assert not any(map(exists, running))
    scene.root.close()


async def test_a_shim_that_cannot_say_yet_who_it_is_is_killed_once_it_can(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "root")
    scene.run(shell(FOR_EVER))
    scene.runtime.remove(UID)
    async with asyncio.timeout(PATIENCE):
        await scene.runtime.settled()
    assert scene.root.removed() == []
    scene.root.close()


async def test_remaining_files_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", f"{path}/file")

    root = Root(tmp_path / "root")
    left = root.move_to_removed(a_pod(root))
    monkeypatch.setattr("kubelet.runtime.process.root.remove_tree", refuse)
    await remove_pod(left, SYSTEM_CLOCK, asyncio.Lock())
    assert f"{left}/file" in caplog.text
    root.close()


@pytest.mark.parametrize(("uid", "container"), [("..", "c"), ("../secret", "c"), ("uid", "../../x"), ("", "c"), ("uid", "a\0")])
def test_names_of_a_caller_lead_nowhere_else(tmp_path: Path, uid: str, container: str) -> None:
    """A log is asked for by the uid of a pod and the name of a container."""
    root = Root(tmp_path / "root")
    for outside in ("secret", "root/secret", "root/pods/c", "root/pods/x"):
        (tmp_path / outside / "containers" / "c" / "0").mkdir(parents=True)
        (tmp_path / outside / "0").mkdir()
    (tmp_path / "root" / "pods" / "uid" / "containers" / "c" / "1").mkdir(parents=True)
    assert root.attempts(uid, container) == []
    assert len(root.attempts("uid", "c")) == 1
    root.close()
