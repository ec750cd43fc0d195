"""The API servers: does each answer, is it of this version, what time is it there, and are there leaders.

The processes of a local cluster: does each run, and is it ready.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.scalars import to_seconds
from pinnace.cli.client_errors import OUT_OF_SPACE
from pinnace.cli.doctor.machine import Finding, ok, problem, warning
from pinnace.cli.outcomes import Failure
from pinnace.cli.servers import reach, version_of
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError, Forbidden
from pinnace.cluster import etcd
from pinnace.cluster.folder import Folder
from pinnace.cluster.processes import is_free
from pinnace.cluster.spec import ELECTIONS, ETCD, ClusterState, ProcessRecord, data_dir_flag
from pinnace.cluster.view import DEAD, problems
from pinnace.runtime import build

TIMEOUT = 3.0
"""Seconds, of a call."""
SKEW = 3.0
"""Seconds by which clocks may differ without a word: the server's time comes without fractions."""
UPGRADING = "docs/upgrading.md says what works together"


async def server(config: ClientConfig, endpoint: str) -> Sequence[Finding]:
    """One of them."""
    name = "server"
    try:
        await reach(replace(config, endpoints=(endpoint,)))
        theirs = await version_of(endpoint, config.tls, TIMEOUT)
    except Failure as failure:
        return [problem(name, failure.report.lines[0], failure.report.hint)]
    except (ApiError, OSError) as error:
        return [problem(name, f"{endpoint}: {error}", "see its log")]
    if theirs != build.version():
        return [warning(name, f"{endpoint} is of version {theirs}, this program of {build.version()}", UPGRADING)]
    return [ok(name, f"{endpoint} answers; version {theirs}")]


async def clock(config: ClientConfig) -> Sequence[Finding]:
    """Asked by an object that is made for show: a dry run."""
    connection = Connection(config.endpoints, tls=config.tls)
    try:
        wanted = Namespace()
        wanted.metadata.generateName = "doctor-"
        before = time.time()
        made = await Client(connection).namespaces.create(wanted, dry_run=True)
        return [skewed(to_seconds(made.metadata.creationTimestamp), before, time.time())]
    except Forbidden:
        return [ok("clock", "not compared: it takes the right to create namespaces")]
    except ApiError as error:
        return [warning("clock", f"not compared: {error}")]
    finally:
        await connection.close()


def skewed(there: float, before: float, after: float) -> Finding:
    """`there`: the server's clock at a moment between these two of ours; all in Unix seconds."""
    difference = max(there - after, before - there - 1, 0.0)
    if difference <= SKEW:
        return ok("clock", "as the server's")
    side = "ahead of" if there > after else "behind"
    message = f"the server's is {difference:,.0f} s {side} this machine's"
    return warning("clock", message, "set the clocks by NTP: certificates, events and deadlines go by them")


async def leaders(config: ClientConfig, expected: Sequence[str]) -> Sequence[Finding]:
    """`expected`: elections that should have a leader."""
    connection = Connection(config.endpoints, tls=config.tls)
    try:
        found = await Client(connection).elections.list()
    except ApiError as error:
        return [warning("leaders", f"not known: {error}")]
    finally:
        await connection.close()
    return led({each.name: each.holder for each in found}, expected)


def led(holders: Mapping[str, str], expected: Sequence[str]) -> Sequence[Finding]:
    hint = "do its candidates run? `pinnace status` shows them, `pinnace leader history NAME` who led before"
    missing = [
        problem("leaders", f'nobody leads "{name}"', hint.replace("NAME", name)) for name in expected if not holders.get(name)
    ]
    said = ", ".join(f"{holder} leads {name}" for name, holder in sorted(holders.items()) if holder)
    return [*missing, *([ok("leaders", said)] if said else [])]


async def processes(state: ClusterState) -> Sequence[Finding]:
    reasons = zip(state.processes, await problems(state), strict=True)
    found = [_unwell(state, record, reason) for record, reason in reasons if reason]
    return found or [ok("processes", f"all {len(state.processes)} of the cluster in {state.spec.data_dir} are ready")]


def elections(state: ClusterState) -> list[str]:
    """That should have a leader."""
    return [election for component, election in ELECTIONS.items() if state.of(component)]


def _unwell(state: ClusterState, record: ProcessRecord, reason: str) -> Finding:
    folder = state.spec.data_dir
    log = f"its log is {Folder(folder).log(record.name)}"
    if reason != DEAD:
        if record.component == ETCD and "NOSPACE" in reason:
            return problem("processes", f"{record.name} is not ready: out of space, only reads and deletes work", OUT_OF_SPACE)
        return problem("processes", f"{record.name} is not ready: {reason}", log)
    taken = [each for each in {record.plan.address, record.plan.http} if not is_free(each)]
    if taken:
        hint = "`pinnace stop` and `pinnace start` choose another one; `ss -ltnp` shows the program"
        return problem("processes", f"{record.name} does not run, and another program has {taken[0]}", hint)
    if lost := etcd.lost_member(record.name, Folder(folder).log_tail(record.name)):
        return problem("processes", f"{record.name} does not run", lost)
    return problem("processes", f"{record.name} does not run", f"pinnace start{data_dir_flag(folder)} {record.name}; {log}")
