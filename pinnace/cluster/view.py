"""The status of a cluster: its processes, whether they are ready (/readyz), the leaders, and the number of Ready nodes."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.elections_pb2 import Election
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, NotFound
from pinnace.cluster import etcd
from pinnace.cluster.certificates import etcd_client_files
from pinnace.cluster.etcd import is_healthy
from pinnace.cluster.inputs import component_options
from pinnace.cluster.processes import find_running, is_port_free
from pinnace.cluster.spec import ELECTION, ELECTIONS, ETCD, ClusterState, ProcessPlan, ProcessRecord, pki_folder
from pinnace.runtime import procfs
from pinnace.runtime.http import SHUTDOWN

CALL_TIMEOUT = 2.0
DEAD = "not running"
"""The problem of a process that has exited."""
SUSPENDED = "suspended by a signal"
"""The problem of a process that was stopped with SIGSTOP."""
PROBE_TIMEOUT = 2.5
"""Seconds; longer than a component needs to detect that its event loop is blocked."""
NO_ANSWER = "no answer"
_direct = build_opener(ProxyHandler({}))
"""Opens loopback addresses whatever http_proxy says."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """`http`: the address of /metrics and /readyz. `pid`: 0 if it does not run. `problem`: why it is not ready. `leader`: it
    holds the election of its component.
    """

    component: str
    name: str
    pid: int
    address: str
    http: str
    ready: bool
    leader: bool
    problem: str = ""
    options: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """Its configuration, by flag and variable (pinnace.cluster.inputs)."""


async def cluster_status(state: ClusterState, client: Client | None) -> list[ProcessStatus]:
    """All processes of the cluster, in starting order. Without a client, leaders are unknown."""
    reasons, elections = await asyncio.gather(process_problems(state), _list_elections(client))
    holders = {election.name: election.holder for election in elections}
    return [_process_status(record, why, holders) for record, why in zip(state.processes, reasons, strict=True)]


async def process_problems(state: ClusterState) -> Sequence[str]:
    """The problem of each process; "" if it is ready. For running members of etcd, also alarms, because not every member
    reports them.
    """
    reasons = await asyncio.gather(*map(process_problem, state.processes))
    unwell = [at for at, why in enumerate(reasons) if why and why != DEAD and state.processes[at].component == ETCD]
    if unwell:
        tls = etcd_client_files(pki_folder(state.spec.data_dir))
        alarms = await asyncio.to_thread(etcd.read_alarms, state.processes[unwell[0]].plan.address, tls)
        for at in unwell if alarms else ():
            reasons[at] = f"alarm {', '.join(alarms)}"
    return reasons


def _process_status(record: ProcessRecord, why: str, holders: Mapping[str, str]) -> ProcessStatus:
    process = find_running(record)
    leads = holders.get(ELECTIONS.get(record.component, "")) == record.name
    pid = process.pid if process else 0
    return ProcessStatus(
        record.component,
        record.name,
        pid,
        record.plan.address,
        record.plan.http,
        not why,
        leads,
        why,
        component_options(record.plan),
    )


async def process_problem(record: ProcessRecord) -> str:
    """Why it is not ready; "" if it is ready."""
    process = find_running(record)
    if process is None:
        return DEAD
    return SUSPENDED if procfs.is_suspended(process) else await probe_readiness(record.plan) or ""


async def scheduler_leader(client: Client) -> Election | None:
    """The leader of the schedulers' election; None: there is none. Raises ApiError."""
    try:
        return await client.elections.get(ELECTION)
    except NotFound:
        return None


async def _list_elections(client: Client | None) -> Sequence[Election]:
    """The elections with a leader; empty if no API server responds in time."""
    if client is None:
        return []
    try:
        async with asyncio.timeout(CALL_TIMEOUT):
            return await client.elections.list()
    except (ApiError, TimeoutError):
        return []


async def election_leaders(client: Client) -> list[str]:
    """The leaders of the components' elections; empty if no API server responds in time."""
    return [election.holder for election in await _list_elections(client) if election.name in ELECTIONS.values()]


async def try_scheduler_leader(client: Client) -> Election | None:
    """As `scheduler_leader`; None also if no API server responds in time."""
    try:
        async with asyncio.timeout(CALL_TIMEOUT):
            return await scheduler_leader(client)
    except (ApiError, TimeoutError):
        return None


async def count_ready_nodes(client: Client) -> int:
    """The number of Ready nodes. Raises ApiError."""
    return sum(map(is_node_ready, (await client.nodes.list()).items))


def is_node_ready(node: Node) -> bool:
    return conditions.is_condition_true(node.status.conditions, "Ready")


async def probe_readiness(plan: ProcessPlan, timeout: float = PROBE_TIMEOUT) -> str | None:
    """None: it is ready. Otherwise its own message."""
    return await asyncio.to_thread(_probe_readiness, plan, timeout)


def _probe_readiness(plan: ProcessPlan, timeout: float) -> str | None:
    if plan.component == ETCD:
        if is_healthy(plan.http, timeout):
            return None
        return f"{NO_ANSWER}: connection refused" if is_port_free(plan.http) else "not healthy"
    try:
        try:
            with _direct.open(f"http://{plan.http}/readyz", timeout=timeout):
                return None
        except HTTPError as error:
            with error:
                return failed_checks(error.read().decode(errors="replace"))
    except HTTPException:
        return "no answer: invalid HTTP response"
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        return f"{NO_ANSWER}: {getattr(reason, 'strerror', None) or reason}".lower()


def is_stopping(problem: str) -> bool:
    """Whether a running process with this problem may be stopping: it reports this, or does not listen."""
    return f"{SHUTDOWN}:" in problem or (NO_ANSWER in problem and "timed out" not in problem)


def failed_checks(answer: str) -> str:
    """The failed checks of a /readyz on one line: "[-] cache: not loaded" becomes "cache: not loaded"."""
    failed = [line.removeprefix("[-]").strip() for line in answer.splitlines() if line.startswith("[-]")]
    return "; ".join(failed) or "not ready"
