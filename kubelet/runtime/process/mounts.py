"""The namespaces of a container: volumes at their mountPath, and the host name of the pod. Standard library only.

    /              the machine's, as it is
    /data          a volume, bound there, although the machine has no /data

The namespace has a copy of the machine's tree of mounts. A missing directory of a mountPath is never created on the machine:
its parent is covered by a tmpfs that has the entries of the parent (links, and binds of files and directories) and the new
directory. Then the copy becomes the root (pivot_root), and the old one is detached. The kernel removes the namespace with its
last process.

This needs root (CAP_SYS_ADMIN), which a container of the machine may lack: `can_mount` tries it once. Without it, containers
have links in their root directory only (see plan). It is not a sandbox: a process of root can leave the namespace.

`python -m pinnace.kubelet.runtime.process.mounts FOLDER` makes an empty namespace in FOLDER, and exits with 0 if that works.

Source: mount(2), pivot_root(2), mount_namespaces(7), uts_namespaces(7); bubblewrap and runc do the same.
"""

import ctypes
import errno
import os
import platform
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pinnace.kubelet.runtime.process.files import BindMount

_CLONE_NEWNS, _CLONE_NEWUTS = 0x20000, 0x4000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 8192, 16384, 1 << 18
_MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
"""Numbers of the system call, which the C library does not have."""
PROBE_TIMEOUT = 10.0
NEW_ROOT, COVER = "rootfs", "cover"
"""Directories that mounts cover, in the folder of the attempt."""
_libc = ctypes.CDLL(None, use_errno=True)
_covers: set[int] = set()
"""The devices of these file systems."""


def can_mount(environment: dict[str, str]) -> bool:
    """Whether this process may make mount namespaces. `environment`: of the process that tries it. Takes some 50 ms."""
    if os.geteuid() != 0 or platform.machine() not in _PIVOT_ROOT:
        return False
    with tempfile.TemporaryDirectory(prefix="pinnace-mounts-") as folder:
        command = [sys.executable, "-S", "-P", "-m", "pinnace.kubelet.runtime.process.mounts", folder]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, timeout=PROBE_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def enter_new_namespace(mounts: Sequence[BindMount], folder: Path, hostname: str = "") -> None:
    """Move this process, which must be single-threaded, to a namespace with these mounts and, if it is not empty, with this
    host name. `folder`: a directory of the machine for NEW_ROOT and COVER. Raises OSError.
    """
    root, cover = folder / NEW_ROOT, folder / COVER
    for path in (root, cover):
        path.mkdir(exist_ok=True)
    _raise_errno(_libc.unshare(_CLONE_NEWNS | (_CLONE_NEWUTS if hostname else 0)), "unshare")
    if hostname:
        socket.sethostname(hostname)
    _mount("none", "/", _MS_REC | _MS_PRIVATE)
    _mount("/", str(root), _MS_BIND | _MS_REC)
    for mount in mounts:
        target = Path(f"{root}{_resolve_path(mount['target'])}")
        source = os.path.realpath(mount["source"])
        _make_mount_target(root, target, is_directory=Path(source).is_dir(), cover=cover)
        try:
            _mount(source, str(target), _MS_BIND | _MS_REC)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise OSError(error.errno, f"mount {mount['source']} at {mount['target']}: {why}") from None
        if mount["read_only"]:
            _mount("none", str(target), _MS_BIND | _MS_REMOUNT | _MS_RDONLY)
    os.chdir(root)
    _raise_errno(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    _raise_errno(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")


def enter_namespace_of(pid: int) -> None:
    """Move this process to the namespaces of another. Raises OSError."""
    for name, kind in (("uts", _CLONE_NEWUTS), ("mnt", _CLONE_NEWNS)):
        descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _raise_errno(_libc.setns(descriptor, kind), "setns")
        finally:
            os.close(descriptor)


def _resolve_path(path: str) -> str:
    """The path without links of the machine, such as /var/run, and without parts that lead upwards."""
    return os.path.realpath(os.path.normpath(f"/{path.lstrip('/')}"))


def _make_mount_target(root: Path, target: Path, *, is_directory: bool, cover: Path) -> None:
    """Make the place of a mount without a change of the machine."""
    here = root
    parts = target.relative_to(root).parts
    for index, part in enumerate(parts):
        parent, here = here, here / part
        if here.is_symlink():
            raise OSError(errno.ELOOP, f"mountPath leads through the symbolic link {here.relative_to(root)}")
        if here.exists():
            continue
        if not _is_covering_tmpfs(parent):
            _cover_with_tmpfs(parent, cover)
        if index + 1 < len(parts) or is_directory:
            here.mkdir()
        else:
            here.touch()


def _is_covering_tmpfs(folder: Path) -> bool:
    """Whether the folder is on a tmpfs of `_cover_with_tmpfs`."""
    return folder.stat().st_dev in _covers


def _cover_with_tmpfs(folder: Path, cover: Path) -> None:
    """Cover a directory with a tmpfs that has the same entries."""
    status = folder.stat()
    _mount("tmpfs", str(cover), 0, b"tmpfs", b"size=1m,nr_inodes=0")
    cover.chmod(stat.S_IMODE(status.st_mode))
    for entry in os.scandir(folder):
        copy = cover / entry.name
        if entry.is_symlink():
            copy.symlink_to(Path(entry.path).readlink())
            continue
        if entry.is_dir():
            copy.mkdir()
        else:
            copy.touch()
        _mount(entry.path, str(copy), _MS_BIND | _MS_REC)
    _covers.add(cover.stat().st_dev)
    _mount(str(cover), str(folder), _MS_MOVE)


def _mount(source: str, target: str, flags: int, kind: bytes | None = None, data: bytes | None = None) -> None:
    done = _libc.mount(os.fsencode(source), os.fsencode(target), kind, ctypes.c_ulong(flags), data)
    _raise_errno(done, f"mount {source} at {target}")


def _raise_errno(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main() -> None:
    try:
        enter_new_namespace([BindMount(source=sys.argv[1], target="/pinnace-probe/here", read_only=True)], Path(sys.argv[1]))
    except OSError as error:
        sys.exit(str(error))
    sys.exit(0 if Path("/pinnace-probe/here").is_dir() else 1)


if __name__ == "__main__":
    main()
