"""The limits of a container's process, and the program that executes the command of an exec. Standard library only.

`limit_process` sets the limits before the process starts. RLIMIT_DATA limits the private writable memory of a process, but not
memory that is reserved or shared (RLIMIT_AS would, and the runtimes of Go and Java reserve much). The limit applies to
each process, not to the container. At the limit, allocations fail, and the process is not killed.

The program reads a plan (kubelet.runtime.process.files.ProcessPlan) from a descriptor and executes its command in the
environment and with the limits of the container. Arguments: the descriptor, and the pid of the kubelet.

Source: getrlimit(2), prctl(2).
"""

import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import termios

from pinnace.kubelet.runtime.process import mounts

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def limit_process(memory: int | None, parent: int) -> None:
    """Limit this process, also after exec: `memory` in bytes, and SIGKILL when `parent` (a pid) exits."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def adopt_orphans() -> None:
    """Make this process a subreaper: orphaned descendants become its children."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


NOT_FOUND, NOT_EXECUTABLE = 127, 126


def main() -> None:
    with os.fdopen(int(sys.argv[1])) as file:
        plan = json.load(file)
    limit_process(plan["memory"], int(sys.argv[2]))
    command = plan["argv"]
    try:
        if plan.get("terminal"):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if "enter" in plan:
            mounts.enter_namespace_of(plan["enter"])
        os.chdir(plan["cwd"])
        os.execvpe(command[0], command, plan["env"])
    except (OSError, ValueError) as error:  # ValueError: a null character
        print(f"cannot run {command[0]}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        sys.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


if __name__ == "__main__":
    main()
