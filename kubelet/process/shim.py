"""The parent of one container's process: what containerd-shim is to containerd. It outlives the kubelet, and remembers for it.

    kubelet --starts--> shim --starts--> the process, in a session of its own --> its children

* It writes down what the process says, and how it ended: a kubelet that was not there finds it in the files (see files).
* It stops the process when it is told to: SIGTERM to its group, SIGKILL when the grace has ended; the kubelet need not live
  for that.
* Nothing of a container survives the process that it began with. Whatever that has started, and however far it has gone (a
  daemon in a session of its own), comes to the shim as to its parent, and is killed.
* When the shim itself is killed the process dies with it.

It is small, and of the standard library only: there is one for each container that runs.
"""

import errno
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

from kubelet.process import files, limits, messages
from kubelet.process.crilog import LogWriter
from kubelet.process.files import Ended, Plan, Running, Stop

CHUNK = 1 << 16
CLEANUP = 5.0
"""Seconds that what the process leaves behind has to die of SIGKILL."""
START_ERROR = 128
"""The exit code of what could not be started, as containerd's."""
KILLED = 128 + signal.SIGKILL
LONGEST_POLL = 2**31 - 1
"""Milliseconds that one poll can wait: 24.8 days."""


class Shim:
    """In the folder of the attempt, which is the working directory: that may be moved."""

    def __init__(self, plan: Plan, ready: int) -> None:
        """`ready`: a descriptor that is closed once the process runs, or never will."""
        self._plan = plan
        self._ready = ready
        self._log = LogWriter(files.LOG, plan["log_bytes"], plan["log_files"])
        self._stop: Stop | None = None
        self._terminated = self._killed = False
        self._began = time.time()
        self._code: int | None = None

    def run(self) -> None:
        limits.adopt_orphans()
        woken = _wake_on_signals()
        if files.read(files.STOP) is not None:
            return self._never(KILLED, message="stopped before it was started")
        messages.make(self._plan["message_path"])
        try:
            process = self._start()
        except (OSError, ValueError, subprocess.SubprocessError) as error:  # ValueError: of a null character
            why = f"{self._plan['argv'][0]}: {getattr(error, 'strerror', None) or error}"
            if isinstance(error, OSError) and error.filename == self._plan["cwd"]:
                why = f"workingDir {error.filename}: {error.strerror}"
            return self._never(START_ERROR, "StartError", f"cannot start {why}")
        self._announce(process.pid)
        self._tend(process, woken)
        code = self._code if self._code is not None else KILLED
        return self._end(code, message=self._message(code))

    def _message(self, code: int) -> str:
        """The termination message."""
        plan = self._plan
        found = messages.read(plan["message_path"], plan["message_bytes"])
        if not found and code and plan["message_from_log"]:
            self._log.flush()
            return messages.end_of_log(files.LOG, plan["log_files"], plan["message_bytes"])
        return found

    def _start(self) -> "subprocess.Popen[bytes]":
        plan = self._plan
        return subprocess.Popen(
            plan["argv"], env=plan["env"], cwd=plan["cwd"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, preexec_fn=partial(limits.bind, plan["memory"], os.getpid()),
        )  # fmt: skip

    def _announce(self, pid: int) -> None:
        self._began = time.time()
        with open(f"/proc/{pid}/stat") as file:  # a zombie has one, too
            started = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        files.write(files.RUNNING, Running(pid=pid, started=started, boot=boot, at=self._began))
        os.close(self._ready)

    def _tend(self, process: "subprocess.Popen[bytes]", woken: int) -> None:
        """Until the process has ended, and everything that it has started."""
        assert process.stdout is not None and process.stderr is not None
        streams = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
        for descriptor in streams:
            os.set_blocking(descriptor, False)
        poll = select.poll()
        for descriptor in (*streams, woken):
            poll.register(descriptor, select.POLLIN)
        self._look_for_stop(process.pid)
        while not self._reap(process.pid):
            for descriptor, _ in poll.poll(self._patience()):
                if descriptor == woken:
                    if files.KILL in os.read(woken, CHUNK):
                        self._kill(process.pid)
                    self._look_for_stop(process.pid)
                elif self._copy(descriptor, streams[descriptor]) == 0:
                    poll.unregister(descriptor)
            self._kill_when_due(process.pid)
        _kill_descendants()
        for descriptor, stream in streams.items():
            while self._copy(descriptor, stream):
                pass

    def _copy(self, descriptor: int, stream: str) -> int | None:
        """How many bytes; 0 at the end, None when there are none now."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return None
        self._log.write(stream, data)
        return len(data)

    def _look_for_stop(self, pid: int) -> None:
        self._stop = files.read(files.STOP)
        if self._stop is not None and not self._terminated and self._stop["grace"] > 0:
            self._terminated = True
            _signal_group(pid, signal.SIGTERM)

    def _patience(self) -> int | None:
        """Milliseconds until there is something to do unasked."""
        if self._stop is None or self._killed:
            return None
        return min(LONGEST_POLL, max(0, int((self._stop["deadline"] - time.monotonic()) * 1000) + 1))

    def _kill_when_due(self, pid: int) -> None:
        if self._stop is not None and not self._killed and time.monotonic() >= self._stop["deadline"]:
            self._kill(pid)

    def _kill(self, pid: int) -> None:
        self._killed = True
        _signal_group(pid, signal.SIGKILL)

    def _reap(self, pid: int) -> bool:
        """Takes the ends of all children that have ended. True: the process is among them."""
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                return False
            if ended == pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code
                return True

    def _never(self, code: int, reason: str = "", message: str = "") -> None:
        """The process was not started."""
        self._log.write("stderr", f"{message}\n".encode())
        self._end(code, reason, message)

    def _end(self, code: int, reason: str = "", message: str = "") -> None:
        self._log.close()
        finished = time.time()
        ended = Ended(code=code, started=self._began, finished=finished, reason=reason, message=message)
        files.write(files.EXIT, ended)


def _wake_on_signals() -> int:
    """A descriptor that has something to read after a child has ended or the kubelet has nudged. What ends other programs means
    nothing to a shim: it ends when its process does."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, files.NUDGE, files.KILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)  # and not SIG_IGN, which the process would inherit
    return readable


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def _kill_descendants() -> None:
    """Kills children until there are none: the children of each that dies become ours."""
    deadline = time.monotonic() + CLEANUP
    while time.monotonic() < deadline:
        for child in _children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
        except ChildProcessError as error:
            assert error.errno == errno.ECHILD
            return


def _children() -> list[int]:
    me, found = str(os.getpid()), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError), open(f"/proc/{entry}/stat") as file:
                if file.read().rpartition(")")[2].split()[1] == me:
                    found.append(int(entry))
    return found


def main() -> None:
    """Arguments: the folder, and the descriptors of its lock and of `ready`."""
    folder, lock, ready = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.chdir(folder)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    Shim(files.read(files.PLAN), ready).run()


if __name__ == "__main__":
    main()
