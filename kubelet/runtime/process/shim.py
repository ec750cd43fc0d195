"""The shim: the parent of one container's process, as containerd-shim is. It outlives the kubelet. Standard library only.

    kubelet --starts--> shim --starts--> the process, in a session of its own --> its children

* The shim writes the log, and records the start and the exit in files that any later kubelet reads (see files).
* When asked to stop, it sends SIGTERM to the process group, and SIGKILL when the grace period is over, with or without a
  kubelet.
* No descendant survives the container's process. Whatever it has started, including daemons in sessions of their own, is
  reparented to the shim, which kills it.
* If the shim is killed, the process dies with it.

The log has the format of the CRI, one entry per line or per 16 KiB:

    2026-11-22T11:45:59.720367123Z stdout F hello
    2026-11-22T11:45:59.720401544Z stderr P a line without its end, or longer than 16 KiB

A log file that reaches its size limit is renamed to <name>.1 (and .1 to .2, and so on); the oldest is deleted. Files contain
whole entries only. Lines that cannot be written are counted, and reported in an entry of stderr before the next one that can
be written.

The termination message is the end of the file at terminationMessagePath. With the policy FallbackToLogsOnError, a container
that fails without a message has the end of its log as its message: 80 lines or 2,048 bytes.
Source: https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md,
https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""

import errno
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from pinnace.kubelet.runtime.process import files, launch, mounts
from pinnace.kubelet.runtime.process.files import ExitRecord, ProcessPlan, RunningRecord, StopRecord

MAX_LINE = 16 << 10
"""Maximum bytes of an entry, as in containerd."""
LOG_LINES = 80
LOG_BYTES = 2048
_SCANNED = 1 << 16
"""Bytes of each log file that are read for the message. Entries are longer than their text."""
CHUNK = 1 << 16
CLEANUP = 5.0
"""Maximum seconds for remaining processes to exit after SIGKILL."""
START_ERROR = 128
"""The exit code if the process could not be started, as in containerd."""
KILLED = 128 + signal.SIGKILL
LONGEST_POLL = 2**31 - 1
"""The maximum timeout of poll in milliseconds: 24.8 days."""


def format_timestamp(nanoseconds: int) -> str:
    """RFC 3339 of a Unix time. All have the same length, so they can be compared as text."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


class LogWriter:
    """Writes the log. If the disk is full, output is lost, but the container continues."""

    def __init__(self, path: str, max_bytes: int, files: int) -> None:
        """`files`: the maximum number of files, including the current one. Raises OSError."""
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        self._pending: dict[str, bytes] = {}
        self._lost: int | None = None  # lines; 0: parts of a line
        self._why = ""
        self._file = _open_log(path)
        self._size = os.fstat(self._file).st_size

    def write(self, stream: str, data: bytes) -> None:
        """Write output of "stdout" or "stderr". Bytes after the last line end are kept for the next call."""
        *lines, rest = (self._pending.get(stream, b"") + data).split(b"\n")
        entries = [entry for line in lines for entry in _split_entries(line, b"F")]
        while len(rest) >= MAX_LINE:
            entries.append((b"P", rest[:MAX_LINE]))
            rest = rest[MAX_LINE:]
        self._pending[stream] = rest
        self._append(stream, entries)

    def flush(self) -> None:
        """Write the remaining bytes of a stream."""
        for stream, rest in self._pending.items():
            if rest:
                self._append(stream, [(b"P", rest)])
        self._pending.clear()
        self._report_lost_lines()

    def close(self) -> None:
        """Write the remaining bytes of both streams."""
        self.flush()
        os.close(self._file)

    def _append(self, stream: str, entries: list[tuple[bytes, bytes]]) -> None:
        if not entries:
            return
        written = self._write_entries(_encode_entries(stream, entries)) if self._report_lost_lines() else 0
        if written < len(entries):
            self._lost = (self._lost or 0) + sum(tag == b"F" for tag, _ in entries[written:])

    def _report_lost_lines(self) -> bool:
        """Report lost lines. Return whether the report was written, or not necessary."""
        if self._lost is not None:
            many = self._lost > 1
            text = f"{self._lost if many else 1} line{'s were' if many else ' was'} lost: {self._why}"
            if not self._write_entries(_encode_entries("stderr", [(b"F", text.encode())])):
                return False
            self._lost = None
        return True

    def _write_entries(self, data: bytes) -> int:
        """Return the number of entries that were written completely; the file has no part of the others."""
        written = 0
        try:
            if self._size and self._size + len(data) > self._max_bytes:
                self._rotate_log()
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            self._why = os.strerror(error.errno or 0).lower()
        whole = data.rfind(b"\n", 0, written) + 1
        if whole < written:
            with suppress(OSError):
                os.ftruncate(self._file, self._size + whole)
        self._size += whole
        return data.count(b"\n", 0, whole)

    def _rotate_log(self) -> None:
        """Raises OSError; then the current file remains open."""
        fresh = _open_log(f"{self._path}.new")
        try:
            for number in range(self._files - 1, 0, -1):
                older = f"{self._path}.{number - 1}" if number > 1 else self._path
                if os.path.exists(older):
                    os.replace(older, f"{self._path}.{number}")
            os.replace(f"{self._path}.new", self._path)
        except OSError:
            os.close(fresh)
            raise
        os.close(self._file)
        self._file, self._size = fresh, 0


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)


def _encode_entries(stream: str, entries: list[tuple[bytes, bytes]]) -> bytes:
    head = f"{format_timestamp(time.time_ns())} {stream} ".encode()
    return b"".join(head + tag + b" " + content + b"\n" for tag, content in entries)


def _split_entries(line: bytes, tag: bytes) -> list[tuple[bytes, bytes]]:
    """A whole line, in parts if it is long. All parts except the last are partial."""
    parts = [line[start : start + MAX_LINE] for start in range(0, len(line), MAX_LINE)] or [b""]
    return [(b"P", part) for part in parts[:-1]] + [(tag, parts[-1])]


def make_message_file(path: str) -> None:
    """Create an empty file. If this fails, there is no message."""
    with suppress(OSError, ValueError):  # ValueError: a null character
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666))


def read_message(path: str, limit: int) -> str:
    """The last `limit` bytes; empty if there is no regular file."""
    return _decode_text(_read_tail(path, limit), limit)


def end_of_log(path: str, files: int, limit: int) -> str:
    """The last lines of a log in CRI format."""
    data = b""
    for number in range(files):
        data = _read_tail(f"{path}.{number}" if number else path, _SCANNED) + data
        if data.count(b"\n") > LOG_LINES or len(data) >= _SCANNED:
            break
    text = b""
    for entry in data.splitlines()[-LOG_LINES:]:
        _, _, rest = entry.partition(b" ")
        _, _, rest = rest.partition(b" ")
        tag, _, content = rest.partition(b" ")
        text += content if tag == b"P" else content + b"\n"
    limit = min(limit, LOG_BYTES)
    return _decode_text(text[-limit:], limit)


def _read_tail(path: str, limit: int) -> bytes:
    """Does not follow a symbolic link, which the container may have created."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        return os.pread(descriptor, limit, max(0, status.st_size - limit))
    finally:
        os.close(descriptor)


def _decode_text(data: bytes, limit: int) -> str:
    """Replace invalid UTF-8, with at most `limit` bytes."""
    return data.decode(errors="replace").encode()[-limit:].decode(errors="ignore") if data else ""


class Shim:
    """Runs in the directory of the attempt, with relative paths, because the directory can be moved."""

    def __init__(self, plan: ProcessPlan, ready: int) -> None:
        """`ready`: a descriptor that is closed when the process runs or could not be started."""
        self._plan = plan
        self._ready = ready
        self._folder = Path.cwd()
        self._refusals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._log = LogWriter(files.LOG, plan["log_bytes"], plan["log_files"])
        self._stop: StopRecord | None = None
        self._terminated = self._killed = False
        self._began = time.time()
        self._code: int | None = None

    def run(self) -> None:
        launch.adopt_orphans()
        woken = _wake_on_signals()
        if files.read_record(files.STOP) is not None:
            return self._record_start_failure(KILLED, message="stopped before it was started")
        make_message_file(self._plan["message_path"])
        try:
            process = self._start()
        except (OSError, ValueError, subprocess.SubprocessError) as error:  # ValueError: a null character
            why = f"{self._plan['argv'][0]}: {getattr(error, 'strerror', None) or error}"
            if isinstance(error, OSError) and error.filename == self._plan["cwd"]:
                why = f"workingDir {error.filename}: {error.strerror}"
            elif told := self._mount_error():
                why = f"{self._plan['argv'][0]}: {told}"
            return self._record_start_failure(START_ERROR, "StartError", f"cannot start {why}")
        self._write_running_record(process.pid)
        self._run_until_exit(process, woken)
        code = self._code if self._code is not None else KILLED
        return self._record_exit(code, message=self._termination_message(code))

    def _termination_message(self, code: int) -> str:
        """The termination message."""
        plan = self._plan
        message = read_message(plan["message_path"], plan["message_bytes"])
        if not message and code and plan["message_from_log"]:
            self._log.flush()
            return end_of_log(files.LOG, plan["log_files"], plan["message_bytes"])
        return message

    def _start(self) -> "subprocess.Popen[bytes]":
        plan = self._plan
        prepare = partial(launch.limit_process, plan["memory"], os.getpid())
        cwd: str | None = plan["cwd"]
        if plan.get("mounts"):
            prepare, cwd = partial(self._prepare_mounts, prepare), None  # the directory may exist in the namespace only
        return subprocess.Popen(
            plan["argv"], env=plan["env"], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, preexec_fn=prepare,
        )  # fmt: skip

    def _prepare_mounts(self, prepare: Callable[[], None]) -> None:
        """Run in the child. subprocess does not pass on the message of an exception there, so a pipe does."""
        try:
            mounts.enter_new_namespace(self._plan["mounts"], self._folder, self._plan.get("hostname", ""))
            os.chdir(self._plan["cwd"])
        except OSError as error:
            where = f"workingDir {error.filename}: " if error.filename == self._plan["cwd"] else ""
            os.write(self._refusals[1], f"{where}{error.strerror}".encode())
            raise
        prepare()

    def _mount_error(self) -> str:
        """Why the child could not make its mounts; otherwise empty."""
        try:
            return os.read(self._refusals[0], CHUNK).decode(errors="replace")
        except BlockingIOError:
            return ""

    def _write_running_record(self, pid: int) -> None:
        self._began = time.time()
        with open(f"/proc/{pid}/stat") as file:  # a zombie has a session, too
            started = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        files.write_record(files.RUNNING, RunningRecord(pid=pid, started=started, boot=boot, at=self._began))
        os.close(self._ready)

    def _run_until_exit(self, process: "subprocess.Popen[bytes]", woken: int) -> None:
        """Run until the process and all its descendants have exited."""
        assert process.stdout is not None and process.stderr is not None
        streams = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
        for descriptor in streams:
            os.set_blocking(descriptor, False)
        poll = select.poll()
        for descriptor in (*streams, woken):
            poll.register(descriptor, select.POLLIN)
        self._read_stop_request(process.pid)
        while not self._reap_children(process.pid):
            for descriptor, _ in poll.poll(self._poll_timeout_ms()):
                if descriptor == woken:
                    if files.KILL in os.read(woken, CHUNK):
                        self._kill(process.pid)
                    self._read_stop_request(process.pid)
                elif self._copy_output(descriptor, streams[descriptor]) == 0:
                    poll.unregister(descriptor)
            self._kill_when_due(process.pid)
        _kill_descendants()
        for descriptor, stream in streams.items():
            while self._copy_output(descriptor, stream):
                pass

    def _copy_output(self, descriptor: int, stream: str) -> int | None:
        """The number of bytes read; 0 at the end, None if there are none yet."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return None
        self._log.write(stream, data)
        return len(data)

    def _read_stop_request(self, pid: int) -> None:
        self._stop = files.read_record(files.STOP)
        if self._stop is not None and not self._terminated and self._stop["grace"] > 0:
            self._terminated = True
            _signal_group(pid, signal.SIGTERM)

    def _poll_timeout_ms(self) -> int | None:
        """Milliseconds until the next timer."""
        if self._stop is None or self._killed:
            return None
        return min(LONGEST_POLL, max(0, int((self._stop["deadline"] - time.monotonic()) * 1000) + 1))

    def _kill_when_due(self, pid: int) -> None:
        if self._stop is not None and not self._killed and time.monotonic() >= self._stop["deadline"]:
            self._kill(pid)

    def _kill(self, pid: int) -> None:
        self._killed = True
        _signal_group(pid, signal.SIGKILL)

    def _reap_children(self, pid: int) -> bool:
        """Reap all children that have exited. Return whether the process is among them."""
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                return False
            if ended == pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code
                return True

    def _record_start_failure(self, code: int, reason: str = "", message: str = "") -> None:
        """The process could not be started."""
        self._log.write("stderr", f"{message}\n".encode())
        self._record_exit(code, reason, message)

    def _record_exit(self, code: int, reason: str = "", message: str = "") -> None:
        self._log.close()
        finished = time.time()
        ended = ExitRecord(code=code, started=self._began, finished=finished, reason=reason, message=message)
        files.write_record(files.EXIT, ended)


def _wake_on_signals() -> int:
    """A descriptor that is readable after a child has exited or the kubelet has sent a signal. Termination signals are ignored:
    the shim exits after its process.
    """
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, files.NUDGE, files.KILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)  # not SIG_IGN, which the process would inherit
    return readable


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def _kill_descendants() -> None:
    """Kill children until there are none. Orphans of killed children become children of the shim."""
    deadline = time.monotonic() + CLEANUP
    while time.monotonic() < deadline:
        for child in _child_pids():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
        except ChildProcessError as error:
            assert error.errno == errno.ECHILD
            return


def _child_pids() -> list[int]:
    me, numbers = str(os.getpid()), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError), open(f"/proc/{entry}/stat") as file:
                if file.read().rpartition(")")[2].split()[1] == me:
                    numbers.append(int(entry))
    return numbers


def main() -> None:
    """Arguments: the directory, and the descriptors of its lock and of `ready`."""
    folder, lock, ready = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.chdir(folder)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    Shim(files.read_record(files.PLAN), ready).run()


if __name__ == "__main__":
    main()
