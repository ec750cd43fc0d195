"""Kubeconfig files on the disk: where kubectl looks for them, how they are read, locked and replaced.

Guarantees of `edit_kubeconfig`:

- At any time the file has its complete old or its complete new text, also after `kill -9` or a power failure: the new text is
  written to `FILE.pinnace-new`, synced, and renamed. The file keeps its mode and owner; a new file has mode 0600.
- kubectl and pinnace do not overwrite each other's changes: both hold `FILE.lock`, which client-go creates with O_EXCL.
- A symbolic link stays one; the file that it names is replaced.

A lock of a pinnace that was killed is recognized (its holder has a flock(2) on it, which ends with the process) and removed. A
lock of another program is never removed: after a deadline, an error names it.

Not promised: other hard links to the file keep the old text. A file that is a mount point of its own cannot be replaced.

Source: client-go, tools/clientcmd/loader.go (`ClientConfigLoadingRules`, `lockFile`) and config.go (`GetDefaultFilename`)
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pinnace.client.kubeconfig import MAX_SIZE, SKELETON, ConfigError, KubeconfigSyntaxError

if TYPE_CHECKING:  # YAML is imported when a file is read
    from pinnace.client.kubeconfig_text import KubeconfigText

LOCK_TIMEOUT = 10.0
"""Seconds to wait for the lock of another program. Locks are held for milliseconds."""
_POLL = 0.02
_OURS = b"pinnace\n"
"""The content of a lock file of pinnace. client-go's are empty."""


def kubectl_paths(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the files that kubectl merges, in order of precedence: those of $KUBECONFIG, or ~/.kube/config. Empty parts of the
    list are ignored, as are files that do not exist."""
    named = [Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    home = environ.get("HOME")
    return list(dict.fromkeys(named)) or [(Path(home) if home else Path.home()) / ".kube" / "config"]


def file_for_new_entries(paths: Sequence[Path]) -> Path:
    """Return the file to which kubectl writes new entries: the first that exists, else the last one."""
    return next((path for path in paths if os.path.lexists(path)), paths[-1])


def read_text(path: Path) -> str | None:
    """Return the text of the file with its line ends. None: it does not exist. Raises ConfigError."""
    repair = f"repair or remove {path}"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            if path.is_dir():
                raise ConfigError(f"{path}: is a directory", "name a file with --kubeconfig or KUBECONFIG")
            if path != Path(os.devnull):  # reading a pipe would block
                raise ConfigError(f"{path}: is not a regular file", "name another file with --kubeconfig or KUBECONFIG")
        with path.open("rb") as file:
            data = file.read(MAX_SIZE + 1)
        if len(data) > MAX_SIZE:
            raise ConfigError(f"{path}: is larger than {MAX_SIZE >> 20} MiB, which a kubeconfig never is", repair)
        return data.decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: not valid UTF-8 at byte {error.start}", repair) from None
    except OSError as error:  # a loop of symbolic links, no permission
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}", repair) from None


def parse_file(path: Path, text: str) -> "KubeconfigText":
    """Raises ConfigError that names the file and the line."""
    from pinnace.client.kubeconfig_text import KubeconfigText

    try:
        return KubeconfigText(text)
    except KubeconfigSyntaxError as error:
        raise ConfigError(f"{path}:{error.line}: {error}", f"repair or remove {path}") from None


def describe_risks(path: Path) -> str:
    """Describe who else can change the file, and so redirect commands to another server. "": nobody."""
    try:
        result = path.stat()
    except OSError:
        return ""
    if not stat.S_ISREG(result.st_mode):
        return ""
    if result.st_uid not in (os.geteuid(), 0):
        return f"belongs to another user (uid {result.st_uid})"
    return "other users can write it" if result.st_mode & 0o022 else ""


@contextmanager
def edit_kubeconfig(path: Path, timeout: float = LOCK_TIMEOUT) -> "Iterator[KubeconfigText]":
    """Yield the kubeconfig for changes, and replace the file if the block succeeds and has changed it.

    A missing file and its directory are created. A file that pinnace has created is removed when it has no entry any more.
    Raises ConfigError, and OSError if the file cannot be written."""
    target = _resolve_path(path)
    named = path.parent.resolve() / path.name  # two names of one file would have one lock
    with ExitStack() as locks:
        for locked in dict.fromkeys((named, target)):
            locks.enter_context(hold_kubeconfig_lock(locked, timeout))
        _check_owner(path, target)
        before = read_text(target)
        if before is not None and not stat.S_ISREG(target.stat().st_mode):
            raise ConfigError(f"{path}: is not a regular file", "name another file with --kubeconfig or KUBECONFIG")
        kubeconfig = parse_file(path, before if before and before.strip() else SKELETON)
        yield kubeconfig
        if kubeconfig.text == SKELETON and not path.is_symlink():
            if before is not None and before.strip():
                target.unlink()
        elif kubeconfig.text != (before or SKELETON):
            _replace_file(target, kubeconfig.text)


def check_writable(path: Path) -> None:
    """Raise the errors that `edit_kubeconfig` would raise, without a change of the file."""
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    try:
        with edit_kubeconfig(path):
            if path.exists() or not made:
                _open_draft(_create_draft(_resolve_path(path)))
                _create_draft(_resolve_path(path)).unlink()
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def hold_kubeconfig_lock(path: Path, timeout: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Hold client-go's lock of a kubeconfig, `FILE.lock`. The directory is created. Raises ConfigError after `timeout` seconds,
    and OSError."""
    lock = Path(f"{path}.lock")
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    while True:
        try:
            handle = _create_lock(lock)
            break
        except FileExistsError:
            if _remove_abandoned(lock):
                continue
        except FileNotFoundError:  # another process has removed the empty directory
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"{path}: another program holds its lock {lock} for {timeout:g} s",
                f"wait for it; if no kubectl and no pinnace runs, it was killed: remove {lock}",
            )
        time.sleep(_POLL)  # the other program is client-go: nothing tells when it removes its file
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _create_lock(lock: Path) -> int:
    """Create the lock file, and return its descriptor with a flock on it. Raises FileExistsError, and OSError.

    The file gets its name when it has its content and the flock. Otherwise, a process that is killed in between would leave a
    lock that looks like client-go's. File systems without O_TMPFILE do not allow it."""
    try:
        handle = os.open(lock.parent, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        handle, is_named = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), True
    else:
        is_named = False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, _OURS)
        if not is_named:
            folder = os.open(lock.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:  # with a descriptor of the folder, Python follows the link in /proc
                os.link(f"/proc/self/fd/{handle}", lock.name, dst_dir_fd=folder)
            finally:
                os.close(folder)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _remove_abandoned(lock: Path) -> bool:
    """Remove the lock if it is one of pinnace whose process has ended. Return whether it is gone."""
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return True
    except OSError:  # client-go creates it with mode 0
        return False
    try:
        if os.read(handle, len(_OURS) + 1) != _OURS:
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_ino != lock.lstat().st_ino:
            return True
        lock.unlink()
        return True
    except FileNotFoundError:
        return True
    except OSError:  # its process runs
        return False
    finally:
        os.close(handle)


def _resolve_path(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except FileNotFoundError:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # Python before 3.13 raises RuntimeError for a loop
        if isinstance(error, OSError) and error.errno != errno.ELOOP:
            raise
        raise ConfigError(f"{path}: a loop of symbolic links", f"repair or remove {path}") from None


def _check_owner(path: Path, target: Path) -> None:
    """Raise ConfigError for the file of another user, because the replacement would be ours (root keeps the owner), and for a
    file that its owner has made read-only."""
    try:
        owner = target.stat().st_uid
    except OSError:
        return
    if os.geteuid() not in (0, owner):
        hint = "name a file of your own with --kubeconfig or KUBECONFIG"
        raise ConfigError(f"{path}: belongs to another user (uid {owner}), and is not changed", hint)
    if not os.access(target, os.W_OK):
        raise ConfigError(f"{path}: is read-only, and is not changed", f"chmod u+w {path}, or name another with --kubeconfig")


def _create_draft(target: Path) -> Path:
    return target.with_name(f"{target.name}.pinnace-new")


def _open_draft(draft: Path) -> int:
    draft.unlink(missing_ok=True)  # of a process that was killed; the lock is held
    return os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _replace_file(target: Path, text: str) -> None:
    draft = _create_draft(target)
    handle = _open_draft(draft)
    try:
        with os.fdopen(handle, "wb") as file:
            if target.exists():
                before = target.stat()
                if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                    with suppress(PermissionError):  # the group of a file in a directory with the setgid bit
                        os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
