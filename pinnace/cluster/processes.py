"""Starting and stopping the processes of a cluster.

Each runs in a session of its own: it survives the terminal, and a Ctrl-C meant for `pinnace up` does not reach it.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from pinnace.cluster.errors import ClusterError, StartFailed
from pinnace.cluster.inputs import spawn_environment
from pinnace.cluster.ports import is_free
from pinnace.cluster.spec import APISERVER, CONTROLLERS, ETCD, KUBELET, SCHEDULER, Plan
from pinnace.cluster.state import ProcessRecord
from pinnace.runtime import procfs
from pinnace.runtime.procfs import Identity

STOPPING_ORDER = (
    ((KUBELET, CONTROLLERS, SCHEDULER), signal.SIGTERM),
    ((APISERVER,), signal.SIGTERM),
    ((ETCD,), signal.SIGKILL),
)
"""Schedulers and controllers resign and kubelets close their sessions through API servers that still serve. etcd gets SIGTERM
where its data is kept. Otherwise it gets SIGKILL, because its members would try for seconds to hand over to each other."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
POLL = 0.02


def spawn(plan: Plan, log: Path) -> subprocess.Popen[bytes]:
    """Starts it, with its output appended to `log`. The caller keeps the handle, so that the process is reaped when it ends.
    Raises StartFailed when it cannot be started, or another program has its address."""
    for address in sorted({plan.address, plan.http}):
        if not is_free(address):
            raise StartFailed(
                f"{address}, the address of {plan.name}, is taken by another program",
                hint="see which with `ss -ltnp`; `pinnace stop` and `pinnace start` choose another one",
            )
    try:
        with log.open("ab") as output:
            return subprocess.Popen(
                plan.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent,
                env=spawn_environment(plan, os.environ), start_new_session=True,
            )  # fmt: skip
    except OSError as error:
        raise StartFailed(f"{plan.name} cannot be started: {plan.argv[0]}: {error.strerror or error}") from error


def running(record: ProcessRecord) -> Identity | None:
    """The process of the record if it runs. One whose start was not written down any more, because `up` was killed at that very
    moment, is found by its command line, which no other process shares."""
    if record.process is None:
        return procfs.find(record.plan.argv)
    return record.process if procfs.alive(record.process) else None


async def stop(records: Sequence[ProcessRecord], grace: float = GRACE, *, keep_data: bool = False) -> list[str]:
    """Ends them all, in order; the names of those that did not end when asked. Afterwards none of them runs."""
    killed: list[str] = []
    for components, order in STOPPING_ORDER:
        number = signal.SIGTERM if keep_data else order
        group = {r.name: process for r in records if r.component in components and (process := running(r))}
        for process in group.values():
            procfs.send_signal(process, number)
            procfs.send_signal(process, signal.SIGCONT)  # a stopped process would not see the other
        if await gone(group.values(), grace):
            continue
        for name, process in group.items():
            if procfs.send_signal(process, signal.SIGKILL):
                killed.append(name)
        if not await gone(group.values(), grace):
            stuck = ", ".join(f"{name} (pid {p.pid})" for name, p in group.items() if procfs.alive(p))
            raise ClusterError(f"{stuck} cannot be killed", hint="look at what it waits for: cat /proc/PID/stack")
    return killed


def kill(records: Sequence[ProcessRecord]) -> None:
    """All of them, without order or grace; does not wait for their end."""
    for process in filter(None, map(running, records)):
        procfs.send_signal(process, signal.SIGKILL)


async def end_pods(folders: Sequence[Path], *, keep: bool = False) -> None:
    """Ends what kubelets have left in their folders: processes that are containers outlive them, to be found by the next. With
    `keep` the folders stay, and the next kubelet finds that the containers have ended."""
    for left in folders:
        command = [sys.executable, "-m", "kubelet.process.reset", *(["--keep"] if keep else []), str(left)]
        reset = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        _, why = await reset.communicate()
        if reset.returncode:
            raise ClusterError(f"the pods of {left.name} cannot be ended: {why.decode().strip()}", hint=f"look into {left}")


async def gone(processes: Iterable[Identity], timeout: float) -> bool:
    """Waits until none of them runs. False: some still did after `timeout` seconds."""
    waiting = list(processes)
    deadline = time.monotonic() + timeout
    while waiting := [process for process in waiting if procfs.alive(process)]:
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(POLL)
    return True
