"""Which processor an API server keeps to, where the processes of a cluster have to share them.

Python runs on one processor at a time, and gRPC's threads hand it what comes and take what goes. Where they wake each other
across processors, each wakes a processor besides and finds an empty cache: creates, one a call, are a seventh faster where they
do not (bench/tried.md, "Creates, one a call"). Where there is a processor for each process, nobody is kept to one.

Source: sched_setaffinity(2); https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/ (static policy)
"""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import cycle

from pinnace.cluster.spec import APISERVER, Plan


def kept(plans: Sequence[Plan], processors: Collection[int]) -> dict[str, int]:
    """The processor of each process that keeps to one, by name. They are dealt out in turn: the kernel can move all others, and
    these not."""
    if len(plans) <= len(processors):
        return {}
    servers = (plan.name for plan in plans if plan.component == APISERVER)
    return dict(zip(servers, cycle(sorted(processors)), strict=False))


def keep(pid: int, name: str, plans: Sequence[Plan]) -> None:
    """The process of this name, which was started just now: the threads that it will start stay where it is. If it has ended,
    or a processor has been taken from us, nothing is changed."""
    with suppress(OSError):
        processor = kept(plans, os.sched_getaffinity(0)).get(name)
        if processor is not None:
            os.sched_setaffinity(pid, {processor})
