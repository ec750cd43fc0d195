"""A lock between processes. Threads stand in for processes, because each of them opens the file separately."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from pinnace.runtime.files import hold_file_lock

pytestmark = pytest.mark.processes


def test_lock_file_exists_only_while_the_lock_is_held(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with hold_file_lock(path):
        assert path.exists()
        with pytest.raises(TimeoutError, match="lock"), hold_file_lock(path, timeout=0):
            pass
    assert not path.exists()
    with hold_file_lock(path, timeout=0):
        pass


def test_lock_is_exclusive(tmp_path: Path) -> None:
    """This also holds while the file and its folder are removed and created again."""
    count, path = tmp_path / "count", tmp_path / "folder" / "lock"
    count.write_text("0")

    def add(_: int) -> None:
        with hold_file_lock(path):
            count.write_text(str(int(count.read_text()) + 1))
        with suppress(OSError):
            path.parent.rmdir()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(40)))
    assert count.read_text() == "40"
    assert not path.exists()


def test_lock_without_a_folder_fails_immediately(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "lock", tmp_path / "file" / "deep" / "lock"):
        with pytest.raises(NotADirectoryError), hold_file_lock(path):
            pass


def test_lock_in_an_unwritable_folder_names_no_holder(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "file" / "that" / "is")
    (tmp_path / "file").touch()
    for path in (Path("/proc/lock"), tmp_path / "nowhere" / "lock"):
        with pytest.raises(OSError, match=r"No such file|Not a directory") as caught, hold_file_lock(path):
            pass
        assert not isinstance(caught.value, TimeoutError)


def test_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from pinnace.runtime.files import hold_file_lock
with hold_file_lock(Path({str(tmp_path / "lock")!r})):
    print(flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(TimeoutError), hold_file_lock(tmp_path / "lock", timeout=0):
            pass
        holder.kill()
        holder.wait(10)
    assert (tmp_path / "lock").exists()
    with hold_file_lock(tmp_path / "lock", timeout=0):
        pass
