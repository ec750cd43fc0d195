"""What a process of a container is bound by before it begins. Of the standard library only: every shim has it.

RLIMIT_DATA counts what a process has for itself to write to, not what it only reserves or shares (as RLIMIT_AS would, which
kills whoever reserves a lot, such as Go's and Java's runtimes). It holds for each process alone, not for a container's
together, and one that wants more is not killed: it is not given more.
Source: getrlimit(2), prctl(2).

Executes the command of an exec, in the environment and with the limits of a container. Of the standard library only.

Arguments: a descriptor from which the plan is read (kubelet.runtime.process.files.Plan), and the pid of the kubelet.
"""

import ctypes
import json
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def bind(memory: int | None, parent: int) -> None:
    """Limits this process, also after exec: `memory` in bytes, and SIGKILL when `parent` (a pid) exits."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def adopt_orphans() -> None:
    """Makes this process a subreaper: orphaned descendants become its children."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


NOT_FOUND, NOT_EXECUTABLE = 127, 126


def main() -> None:
    with os.fdopen(int(sys.argv[1])) as file:
        plan = json.load(file)
    bind(plan["memory"], int(sys.argv[2]))
    command = plan["argv"]
    try:
        os.chdir(plan["cwd"])
        os.execvpe(command[0], command, plan["env"])
    except (OSError, ValueError) as error:  # ValueError: a null character
        print(f"cannot run {command[0]}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        sys.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


if __name__ == "__main__":
    main()
