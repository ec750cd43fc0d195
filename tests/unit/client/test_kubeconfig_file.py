"""Which kubeconfig is written, under which lock, and what remains after kill -9."""

import fcntl
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pinnace.client.kubeconfig import SKELETON, ConfigError
from pinnace.client.kubeconfig_file import (
    check_writable,
    describe_risks,
    edit_kubeconfig,
    file_for_new_entries,
    hold_kubeconfig_lock,
    kubectl_paths,
    read_text,
)

FOREIGN = "# mine\nkind: Config\nclusters:\n- name: work # keep\n  cluster: {server: 'https://work'}\n"


def put(path: Path, name: str = "pinnace", timeout: float = 10.0) -> None:
    with edit_kubeconfig(path, timeout) as kubeconfig:
        kubeconfig.put("cluster", name, {"server": "https://127.0.0.1:6443"})


def test_paths_are_those_of_kubectl(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert kubectl_paths({"HOME": str(tmp_path)}) == [tmp_path / ".kube" / "config"]
    assert kubectl_paths({"HOME": str(tmp_path), "KUBECONFIG": ""}) == [tmp_path / ".kube" / "config"]
    paths = kubectl_paths({"KUBECONFIG": f"{one}::{two}:{one}"})
    assert paths == [one, two]
    assert file_for_new_entries(paths) == two, "the last one if none exists"
    two.touch()
    assert file_for_new_entries(paths) == two
    one.touch()
    assert file_for_new_entries(paths) == one, "the first that exists"


def test_new_file_is_private_and_goes_with_its_last_entry(tmp_path: Path) -> None:
    path = tmp_path / "kube" / "config"
    put(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with edit_kubeconfig(path) as kubeconfig:
        kubeconfig.remove("cluster", "pinnace")
    assert not path.exists() and not list(path.parent.iterdir())


@pytest.mark.parametrize("text", ["", FOREIGN, SKELETON])
def test_file_of_the_user_is_never_removed(tmp_path: Path, text: str) -> None:
    path, link = tmp_path / "config", tmp_path / "link"
    path.write_text(text)
    link.symlink_to(path)
    put(link)
    with edit_kubeconfig(link) as kubeconfig:
        kubeconfig.remove("cluster", "pinnace")
    assert link.is_symlink() and path.read_text() in (text, SKELETON)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_replaced_file_keeps_mode_and_symbolic_link(tmp_path: Path, mode: int) -> None:
    """The file may be part of a repository of dotfiles."""
    (tmp_path / "dotfiles").mkdir()
    real, link = tmp_path / "dotfiles" / "config", tmp_path / "link"
    real.write_text(FOREIGN)
    real.chmod(mode)
    link.symlink_to(real)
    put(link)
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == mode
    assert real.read_text().startswith(FOREIGN)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["config", "dotfiles", "link"]


def test_file_is_changed_by_a_relative_path_and_through_a_linked_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name of the file had a lock of its own, which was one file: the second lock waited for the first."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    monkeypatch.chdir(tmp_path)
    for number, path in enumerate((Path("folder/config"), tmp_path / "link/config")):
        put(path, f"c{number}", timeout=0.5)
    assert (tmp_path / "folder/config").read_text().count("server:") == 2


def test_failed_change_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(FOREIGN)
    with pytest.raises(KeyError), edit_kubeconfig(path) as kubeconfig:
        kubeconfig.put("cluster", "pinnace", {})
        raise KeyError
    assert path.read_text() == FOREIGN and list(tmp_path.iterdir()) == [path]


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_large(path: Path) -> None:
    path.write_bytes(b"#" * (10 << 20))


def make_read_only(path: Path) -> None:
    path.write_text(FOREIGN)
    path.chmod(0o400)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Path.mkdir, "config: is a directory"),
        (make_loop, "symbolic links"),
        (make_large, "config: is larger than 3 MiB"),
        (os.mkfifo, "config: is not a regular file"),
        (lambda path: path.symlink_to(os.devnull), "config: is not a regular file"),
        (lambda path: path.write_text("a: [1,\nb: 2"), r"config:3: invalid YAML"),
        (lambda path: path.write_bytes(b"a\xff"), "config: cannot be read: not valid UTF-8"),
        (lambda path: path.write_text("kind: Pod"), "config:1: not a kubeconfig"),
        (lambda path: path.write_text("users: [{name: a}, {name: a}]"), 'config:1: users: duplicate name "a"'),
        pytest.param(make_read_only, "config: is read-only", marks=pytest.mark.skipif(os.geteuid() == 0, reason="root")),
    ],
)
def test_unusable_file_is_named_and_not_changed(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    path = tmp_path / "config"
    make(path)
    before = path.lstat()
    for attempt in (put, check_writable):
        with pytest.raises(ConfigError, match=message) as caught:
            attempt(path)
        assert "config" in caught.value.hint or "KUBECONFIG" in caught.value.hint
    assert path.lstat().st_mtime_ns == before.st_mtime_ns and list(tmp_path.iterdir()) == [path]


def test_file_of_another_user_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(FOREIGN)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        put(path)
    assert "belongs to another user" in describe_risks(path) or path.stat().st_uid == 0
    assert path.read_text() == FOREIGN


@pytest.mark.parametrize(
    ("mode", "risk"), [(0o600, ""), (0o644, ""), (0o620, "other users can write it"), (0o602, "other users")]
)
def test_files_that_others_can_write(tmp_path: Path, mode: int, risk: str) -> None:
    path = tmp_path / "config"
    path.touch()
    path.chmod(mode)
    assert risk in describe_risks(path) and bool(describe_risks(path)) == bool(risk)


def test_check_leaves_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "kube" / "config")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        check_writable(tmp_path / "file" / "config")


def test_missing_file_is_none_and_devnull_is_empty(tmp_path: Path) -> None:
    assert read_text(tmp_path / "none") is None and read_text(Path(os.devnull) / "none") is None
    assert read_text(Path(os.devnull)) == ""


def test_lock_of_another_program_is_named_and_not_removed(tmp_path: Path) -> None:
    """client-go creates an empty file with mode 0."""
    path, lock = tmp_path / "config", tmp_path / "config.lock"
    os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0))
    with pytest.raises(ConfigError, match=f"holds its lock {lock}") as caught:
        put(path, timeout=0.05)
    assert f"remove {lock}" in caught.value.hint and lock.exists() and not path.exists()


def test_lock_excludes_client_go_and_waits_for_it(tmp_path: Path) -> None:
    path, lock = tmp_path / "config", tmp_path / "config.lock"
    with hold_kubeconfig_lock(path):
        with pytest.raises(FileExistsError):
            os.open(lock, os.O_CREAT | os.O_EXCL, 0)
        with pytest.raises(ConfigError, match="holds its lock"):
            put(path, timeout=0.05)
    lock.touch(0)
    waiting = threading.Thread(target=put, args=(path,))
    waiting.start()
    lock.unlink()
    waiting.join(10)
    assert not waiting.is_alive() and path.exists() and not lock.exists()


def test_lock_of_a_killed_pinnace_is_removed(tmp_path: Path) -> None:
    path, lock = tmp_path / "config", tmp_path / "config.lock"
    lock.write_text("pinnace\n")
    put(path, timeout=0.05)
    assert path.exists() and not lock.exists()
    lock.write_text("pinnace\n")
    with lock.open() as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="holds its lock"):
            put(path, "other", timeout=0.05)
    assert lock.exists()


def test_concurrent_writers_lose_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(FOREIGN)
    threads = [threading.Thread(target=put, args=(path, f"c{index}")) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    text = path.read_text()
    assert text.startswith(FOREIGN) and all(f"name: c{index}\n" in text for index in range(8))
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from pathlib import Path
from pinnace.client.kubeconfig_file import edit_kubeconfig
path, link = Path(sys.argv[1]), Path(sys.argv[2])
old = path.read_bytes()

def edit(server):
    with edit_kubeconfig(link, 5.0) as kubeconfig:
        kubeconfig.put("cluster", "pinnace", {"server": server})

edit("https://warm-up")  # imports everything
new = path.read_bytes()
path.write_bytes(old)
for step in range(200):
    child = os.fork()
    if child == 0:
        left = step
        def count(event, arguments):
            global left
            if event == "open" or event == "fcntl.flock" or event.startswith("os."):
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
        for name in ("write", "fsync"):  # they have no audit event
            def audited(*arguments, call=getattr(os, name), name=name):
                sys.audit(f"os.{name}")
                return call(*arguments)
            setattr(os, name, audited)
        sys.addaudithook(count)
        edit("https://warm-up")
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    text = path.read_bytes()
    assert text in (old, new), (step, text)
    assert (path.stat().st_mode & 0o777) == 0o640, oct(path.stat().st_mode)
    print("old" if text == old else "new")
    edit("https://next")  # what was left of the killed one does not disturb
    assert sorted(os.listdir(path.parent)) == ["config", "link"], os.listdir(path.parent)
    path.write_bytes(old)
    if status == 0:
        break
"""


@pytest.mark.processes
def test_kill_at_any_step_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    """A process is killed before each of its system calls in turn."""
    path, link = tmp_path / "config", tmp_path / "link"
    path.write_text(FOREIGN)
    path.chmod(0o640)
    link.symlink_to(path)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), str(link)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = done.stdout.split()
    assert len(seen) > 8 and seen[0] == "old" and seen[-1] == "new" and sorted(seen, reverse=True) == seen
