"""The checks of lab 7: lose the quorum.

The members of etcd are no objects, so these checks also read the processes of the local cluster.
"""

import time
from collections.abc import Sequence
from itertools import pairwise

from pinnace.api.elections_pb2 import Term
from pinnace.api.resources import PODS
from pinnace.api.scalars import to_seconds
from pinnace.client.client import Client
from pinnace.client.config import load_config
from pinnace.client.errors import Expired
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import ClusterError
from pinnace.cluster.spec import ETCD
from pinnace.runtime import procfs
from pinnace.verification.labs.checks import CheckFailed, get_pod
from pinnace.verification.labs.lab01 import node_of_running_pod

MEMBERS = 3
QUORUM = 2
ELECTIONS = ("scheduler", "controllers")
WITHOUT = 2.0
"""Seconds without a leader when the quorum was lost long enough to observe it."""


def _member_start_times() -> dict[str, float | None]:
    """When each member of etcd was started, in seconds since the epoch. None: it does not run."""
    folder = load_config().data_dir
    try:
        records = Cluster.load(folder).state.processes_of(ETCD) if folder else []
    except ClusterError as error:
        raise CheckFailed(str(error)) from None
    if len(records) != MEMBERS:
        raise CheckFailed(f"the cluster has {len(records)} members of etcd, not {MEMBERS}: it may be another cluster")
    entries, now = procfs.read_process_table(), time.time()
    return {
        record.name: now - entries[record.pid].age if record.process and procfs.is_running(record.process) else None
        for record in records
    }


def _require_all_members() -> dict[str, float]:
    """When each member was started. Raises CheckFailed if one does not run."""
    members = _member_start_times()
    if dead := [name for name, started in members.items() if started is None]:
        raise CheckFailed(f"{', '.join(dead)} does not run: `pinnace start` starts it")
    return {name: started for name, started in members.items() if started is not None}


async def _longest_leaderless_gap(client: Client) -> float:
    """Return the longest time in seconds for which neither a scheduler nor the controllers had a leader."""
    some, others = [_leaderless_gaps(await client.elections.list_terms(name)) for name in ELECTIONS]
    return max((min(end, stop) - max(begin, start) for begin, end in some for start, stop in others), default=0.0)


def _leaderless_gaps(terms: Sequence[Term]) -> list[tuple[float, float]]:
    """Return the end of each term and the begin of the next one."""
    return [(float(to_seconds(term.ended)), float(to_seconds(following.began))) for term, following in pairwise(terms)]


async def check_start(client: Client) -> str:
    _member_start_times()
    node_of_running_pod(await get_pod(client, "first"))
    return f"{MEMBERS} members of etcd run, and pod/first is Running"


async def check_one(client: Client) -> str:
    second = await get_pod(client, "second")
    restarted = _member_start_times()["etcd-0"]
    if restarted is not None and restarted < to_seconds(second.metadata.creationTimestamp):
        raise CheckFailed("etcd-0 ran when pod/second was created")
    node_of_running_pod(second)
    return "pod/second was created without etcd-0, and is Running"


async def check_two(client: Client) -> str:
    left = [name for name, started in _member_start_times().items() if started is not None]
    if len(left) < QUORUM:
        pods = (await client.of(PODS).list("default", resource_version="0")).items
        return (
            f"{len(left)} of {MEMBERS} members of etcd runs: nothing can be written, "
            f"and the API servers have {len(pods)} pods in their memory"
        )
    if (gap := await _longest_leaderless_gap(client)) < WITHOUT:
        raise CheckFailed(f"{len(left)} members of etcd run, and there was always a leader: the quorum was not lost")
    return f"etcd had no quorum: no leader for {gap:.0f} s"


async def check_recover(client: Client) -> str:
    _require_all_members()
    node_of_running_pod(await get_pod(client, "second"))
    if "third" in {item.metadata.name for item in (await client.of(PODS).list("default")).items}:
        raise CheckFailed("pod/third exists: it was created when there was a quorum")
    if (gap := await _longest_leaderless_gap(client)) < WITHOUT:
        raise CheckFailed("there was always a leader: the quorum was not lost")
    return f"{MEMBERS} members of etcd run, pod/second exists, and there was no leader for {gap:.0f} s"


async def check_compaction(client: Client) -> str:
    first = await get_pod(client, "first")
    if (color := first.metadata.labels.get("color", "")) != "blue":
        raise CheckFailed(f"pod/first has the color {color or '<none>'}, not blue")
    key = f"{PODS.prefix}default/first"
    item = await client.keys.get(key, keys_only=True)
    if item is None:
        raise CheckFailed("pod/first does not exist")
    earlier = item.mod_revision - 1
    try:
        await client.keys.get(key, earlier, keys_only=True)
    except Expired:
        return f"pod/first is blue, and its values up to revision {earlier} are compacted"
    raise CheckFailed(f"the value of pod/first at revision {earlier} can still be read: etcd has not been compacted yet")


async def check_all(client: Client) -> str:
    members = _require_all_members()
    last = await get_pod(client, "last")
    created = to_seconds(last.metadata.creationTimestamp)
    if older := [name for name, started in members.items() if started < created]:
        raise CheckFailed(f"{', '.join(older)} started before pod/last was created: it was not killed after that")
    node_of_running_pod(last)
    return f"all {MEMBERS} members of etcd started after pod/last was created, and it is Running"


CHECKS = {
    "start": check_start,
    "one": check_one,
    "two": check_two,
    "recover": check_recover,
    "compaction": check_compaction,
    "all": check_all,
}
