"""What becomes of the folders of pods whose files do not want to go."""

import asyncio
from pathlib import Path

import pytest

from kubelet.process.reset import reset
from kubelet.process.root import Root, bury
from pinnace.runtime.clock import SYSTEM_CLOCK
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
        await bury(root.put_away(a_pod(root)), SYSTEM_CLOCK, asyncio.Lock())
        assert (root.pods(), root.removed()) == ([], [])
        root.close()


def test_reset_leaves_nothing() -> None:
    with unprivileged() as folder:
        root = Root(folder / "root")
        a_pod(root)
        root.close()
        reset(folder / "root")
        assert list(folder.iterdir()) == []


async def test_what_stays_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", f"{path}/file")

    root = Root(tmp_path / "root")
    left = root.put_away(a_pod(root))
    monkeypatch.setattr("kubelet.process.root.remove_tree", refuse)
    await bury(left, SYSTEM_CLOCK, asyncio.Lock())
    assert f"{left}/file" in caplog.text
    root.close()
