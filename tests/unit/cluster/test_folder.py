"""The folder of a cluster: its state, its lock and its removal."""

import errno
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pinnace.cluster import spec as states
from pinnace.cluster.errors import ClusterBusy, FolderError
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.spec import ClusterSpec, ClusterState, ProcessPlan, StateError, initial_state
from pinnace.runtime.procfs import ProcessIdentity
from tests.unprivileged import read_only, unprivileged

pytestmark = pytest.mark.processes

OPEN = os.open
PLANS = [
    ProcessPlan("apiserver", "apiserver-0", "127.0.0.1:1", "127.0.0.1:2", ("python", "-m", "pinnace.apiserver.main")),
    ProcessPlan(
        "scheduler", "scheduler-0", "127.0.0.1:3", "127.0.0.1:3", ("python", "-m", "pinnace.scheduler.main"), (("TZ", "UTC"),)
    ),
]
PROCESS = ProcessIdentity(7, 42, "boot")


def a_state(folder: Path) -> ClusterState:
    state = initial_state(ClusterSpec(data_dir=folder, scheduler_plugins=("a:B",)), PLANS, [], 1000.5)
    return replace(state, identity="mine", digests={"stages": "1"}).with_process("scheduler-0", PROCESS)


def test_written_state_is_read_back(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    assert folder.read() is None
    folder.write(a_state(tmp_path))
    assert folder.read() == a_state(tmp_path)


def test_state_has_processes_and_endpoints(tmp_path: Path) -> None:
    state = a_state(tmp_path)
    assert state.find_process("scheduler-0").process == PROCESS and state.find_process("apiserver-0").process is None
    assert state.endpoints == ["127.0.0.1:1"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}', '{"format": 1, "spec": {"nodes": "x"}}'])
def test_invalid_state_is_rejected_with_a_hint(tmp_path: Path, text: str) -> None:
    with pytest.raises(StateError):
        states.decode_state(text)
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(FolderError) as refused:
        ClusterFolder(tmp_path).read()
    assert refused.value.hint


def test_folder_lock_is_exclusive(tmp_path: Path) -> None:
    with ClusterFolder(tmp_path).locked(), pytest.raises(ClusterBusy, match=str(os.getpid())), ClusterFolder(tmp_path).locked():
        pass
    with ClusterFolder(tmp_path).locked():
        pass
    assert not list(tmp_path.iterdir()), "the lock file is removed"


def test_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from pinnace.cluster.folder import ClusterFolder
with ClusterFolder(Path({str(tmp_path)!r})).locked():
    print(flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(ClusterBusy, match=str(holder.pid)), ClusterFolder(tmp_path).locked():
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    assert (tmp_path / "lock").exists()
    with ClusterFolder(tmp_path).locked():
        pass


def no_room(*arguments: object, **named: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def no_file(path: str | Path, flags: int, mode: int = 0o777) -> int:
    return no_room() if flags & os.O_CREAT else OPEN(path, flags, mode)


@pytest.mark.parametrize(("call", "full"), [("pwrite", no_room), ("open", no_file)])
def test_full_disk_does_not_prevent_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, full: Callable[..., int]
) -> None:
    """Regression: `pinnace down` failed because it could not write its pid into the lock. A full disk may not even have
    room for the lock.
    """
    folder = ClusterFolder(tmp_path)
    folder.claim_folder(a_state(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with folder.locked():
            with pytest.raises(ClusterBusy), ClusterFolder(tmp_path).locked():
                pass
            patched.undo()
            with pytest.raises(ClusterBusy), ClusterFolder(tmp_path).locked():
                pass
            folder.remove(a_state(tmp_path))
    assert not list(tmp_path.iterdir())


def test_lock_file_is_locked_where_folders_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On NFS, locking needs a writable descriptor."""
    flock = fcntl.flock

    def as_on_nfs(handle: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", as_on_nfs)
    with ClusterFolder(tmp_path).locked(), pytest.raises(ClusterBusy, match=str(os.getpid())), ClusterFolder(tmp_path).locked():
        pass


def test_full_disk_error_has_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_text", no_room)
    with pytest.raises(FolderError, match="No space left on device") as refused:
        ClusterFolder(tmp_path).write(a_state(tmp_path))
    assert refused.value.hint == "free some space"


def test_created_folder_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    folder = ClusterFolder(path)
    made = folder.create()
    assert made == [tmp_path / "a", path]
    with folder.locked():
        folder.claim_folder(a_state(path))
        (path / "etcd" / "etcd-0").write_text("x")
        folder.log("scheduler-0").write_text("line 1\nline 2\nline 3\n")
        assert folder.log_tail("scheduler-0", 2) == ["line 2", "line 3"]
        assert folder.remove(a_state(path)) == []
    folder.remove_empty_directories(made)
    assert not list(tmp_path.iterdir())


def test_foreign_files_in_the_folder_are_kept(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "a")
    made = folder.create()
    (tmp_path / "a" / "notes.txt").write_text("mine")
    folder.claim_folder(a_state(tmp_path / "a"))
    assert folder.remove(a_state(tmp_path / "a")) == []
    folder.remove_empty_directories(made)
    assert [entry.name for entry in (tmp_path / "a").iterdir()] == ["notes.txt"]


def test_read_only_container_files_are_removed() -> None:
    with unprivileged() as path:
        folder = ClusterFolder(path)
        folder.claim_folder(a_state(path))
        read_only(path / "pods" / "kubelet-0")
        assert folder.remove(a_state(path)) == []
        assert list(path.iterdir()) == []


def test_folder_with_unremovable_files_keeps_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the state, `down` could not remove the cluster, and the next `up` would reject the folder."""

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", f"{path}/file")

    folder = ClusterFolder(tmp_path)
    folder.claim_folder(a_state(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr("pinnace.cluster.folder.remove_tree", refuse)
        with pytest.raises(FolderError, match=r"cannot be removed: Permission denied: .*/file") as refused:
            folder.remove(a_state(tmp_path))
    assert refused.value.hint
    assert folder.read() is not None
    folder.remove(a_state(tmp_path))
    assert folder.read() is None


@pytest.mark.parametrize("foreign", ["etcd/backup.db", "pki/mine.pem", "logs/notes.txt", "pods/x", "config/other.yaml"])
def test_foreign_file_in_a_subfolder_is_kept_and_named(tmp_path: Path, foreign: str) -> None:
    folder = ClusterFolder(tmp_path)
    folder.claim_folder(a_state(tmp_path), {"scheduler.yaml": b"x", "plugins/0/a.py": b"y"})
    (tmp_path / "etcd" / "etcd-0" / "member").mkdir(parents=True)
    (tmp_path / foreign).write_text("mine")
    assert folder.remove(a_state(tmp_path)) == [tmp_path / foreign]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / foreign]


def test_subfolder_without_the_mark_of_the_cluster_is_kept(tmp_path: Path) -> None:
    """Another cluster may have been created in its place."""
    folder = ClusterFolder(tmp_path)
    folder.claim_folder(a_state(tmp_path))
    (tmp_path / "pki" / ".pinnace").unlink()
    (tmp_path / "etcd" / ".pinnace").write_text("another")
    assert folder.remove(a_state(tmp_path)) == [tmp_path / "etcd", tmp_path / "pki"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["etcd", "pki"]


def test_link_is_removed_and_its_target_is_kept(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "cluster")
    folder.create()
    folder.claim_folder(a_state(tmp_path / "cluster"))
    (tmp_path / "cluster" / "etcd").rename(tmp_path / "elsewhere")
    (tmp_path / "cluster" / "etcd").symlink_to(tmp_path / "elsewhere")
    folder.remove(a_state(tmp_path / "cluster"))
    assert list((tmp_path / "cluster").iterdir()) == [] and (tmp_path / "elsewhere" / ".pinnace").exists()


def test_state_of_the_previous_format_is_read_and_removable(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    folder.claim_folder(a_state(tmp_path))
    old = json.loads((tmp_path / "cluster.json").read_text())
    old["format"] = 2
    for name in ("identity", "stopped", "digests"):
        del old[name]
    for name in ("scheduler_config", "scheduler_plugins", "stages"):
        del old["spec"][name]
    (tmp_path / "cluster.json").write_text(json.dumps(old))
    for mark in tmp_path.glob("*/.pinnace"):
        mark.unlink()
    result = folder.read()
    assert result is not None and result.identity == "" and result.processes == a_state(tmp_path).processes
    assert folder.remove(result) == [] and not list(tmp_path.iterdir())


def test_logs_of_a_failed_start_are_kept_until_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "made"
    folder, state = ClusterFolder(path), replace(a_state(path), made=(path,))
    folder.create()
    folder.claim_folder(state)
    folder.log("scheduler-0").write_text("why")
    folder.remove(state, keep_logs=True)
    assert [item.name for item in path.iterdir()] == ["logs"] and folder.log_tail("scheduler-0") == ["why"]
    folder.claim_folder(state)
    assert folder.log_tail("scheduler-0") == []
    assert folder.remove_failed_start() is None, "the folder has a cluster again"
    folder.remove(state, keep_logs=True)
    assert folder.remove_failed_start() == [path] and not list(path.iterdir())


def test_inaccessible_folder_is_rejected_with_a_hint() -> None:
    """Regression: the error was a traceback."""
    with unprivileged() as path:
        (path / "closed").mkdir(mode=0)
        for folder in (path / "closed", path / "closed" / "x"):
            with pytest.raises(FolderError, match=r"cannot be used: Permission denied") as refused:
                ClusterFolder(folder).create()
            assert "--data-dir" in refused.value.hint


def claim_and_die(path: Path, calls: int) -> bool:
    """Claim the folder in a child process that ends before this system call. Return whether it ended before the claim did."""
    if (child := os.fork()) == 0:
        left = iter(range(calls))

        def hook(event: str, _: object) -> None:
            if event in ("open", "os.mkdir", "os.rename", "os.chmod") and next(left, None) is None:
                os._exit(9)

        sys.addaudithook(hook)
        ClusterFolder(path).claim_folder(a_state(path), {"scheduler.yaml": b"x"})
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


@pytest.mark.processes
def test_killed_claim_leaves_nothing_in_the_way_of_the_next(tmp_path: Path) -> None:
    """`up` was killed between the state and the marks: `down` kept all private keys, and each further `up` failed."""
    calls = 0
    while claim_and_die(tmp_path, calls):
        folder = ClusterFolder(tmp_path)
        if (state := folder.read()) is None:
            folder.claim_folder(state := a_state(tmp_path), {"scheduler.yaml": b"x"})
        assert folder.remove(state) == []
        assert not any(path.is_dir() for path in tmp_path.iterdir())
        calls += 1
    assert calls > 10


def test_claim_rejects_data_of_an_unknown_cluster(tmp_path: Path) -> None:
    (tmp_path / "etcd" / "member").mkdir(parents=True)
    with pytest.raises(FolderError, match="does not belong to a known cluster"):
        ClusterFolder(tmp_path).claim_folder(a_state(tmp_path))
    assert ClusterFolder(tmp_path).read() is None


def test_folder_that_cannot_be_created_is_rejected_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="cannot be used") as refused:
        ClusterFolder(tmp_path / "file" / "x").create()
    assert "--data-dir" in refused.value.hint
