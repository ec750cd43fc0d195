"""What is left of a process whose shim was killed: others of its session, which nobody is there to kill."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from kubelet.process.files import Running
from pinnace.runtime import procfs
from pinnace.runtime.procfs import Identity


def kill_rest(running: Running) -> None:
    """Kills the session that the process led. While anybody is in it the kernel gives its number to nobody else; so when
    another process has that number now, there is nobody left."""
    leader = Identity(running["pid"], running["started"], running["boot"])
    if leader.boot != procfs.boot_id() or procfs.identify(leader.pid) not in (None, leader):
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "stat").read_text().rpartition(")")[2].split()[3] == str(leader.pid):
                    os.kill(int(entry.name), signal.SIGKILL)
