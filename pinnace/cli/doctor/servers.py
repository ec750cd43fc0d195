"""The checks of `pinnace doctor` on API servers, leaders, and the processes of a local cluster."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pinnace.api.core_v1_pb2 import Namespace, Service
from pinnace.api.resources import ENDPOINT_SLICES, SERVICES, store_key
from pinnace.api.scalars import to_seconds
from pinnace.api.wellknown import SERVICE_LABEL
from pinnace.cli.client_errors import OUT_OF_SPACE
from pinnace.cli.doctor.machine import Finding, build_ok, build_problem, build_warning
from pinnace.cli.outcomes import Failure
from pinnace.cli.servers import connect_to_any_server, get_server_version
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError, Forbidden
from pinnace.cluster import etcd
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.processes import is_port_free
from pinnace.cluster.spec import ELECTIONS, ETCD, PROXY, ClusterState, ProcessRecord, data_dir_flag
from pinnace.cluster.view import DEAD, process_problems
from pinnace.runtime import build

TIMEOUT = 3.0
"""Timeout of a request, in seconds."""
SKEW = 3.0
"""Maximum clock difference without a warning, in seconds. The server's time has a resolution of 1 s."""
CONNECT_TIMEOUT = 2.0
MAX_SERVICES = 100
"""Services to which the check connects."""
SHOWN = 3
UPGRADING = "docs/upgrading.md lists compatible versions"


async def check_server(config: ClientConfig, endpoint: str) -> Sequence[Finding]:
    """Check one API server."""
    name = "server"
    try:
        await connect_to_any_server(replace(config, endpoints=(endpoint,)))
        theirs = await get_server_version(endpoint, config.tls, TIMEOUT)
    except Failure as failure:
        return [build_problem(name, failure.report.lines[0], failure.report.hint)]
    except (ApiError, OSError) as error:
        return [build_problem(name, f"{endpoint}: {error}", "see the log of the API server")]
    if theirs != build.build_version():
        return [build_warning(name, f"{endpoint} has version {theirs}, this client has {build.build_version()}", UPGRADING)]
    return [build_ok(name, f"{endpoint} responds; version {theirs}")]


async def check_clock(config: ClientConfig) -> Sequence[Finding]:
    """Compare the clocks by the creation timestamp of a dry run."""
    connection = Connection(config.endpoints, tls=config.tls)
    try:
        wanted = Namespace()
        wanted.metadata.generateName = "doctor-"
        before = time.time()
        made = await Client(connection).namespaces.create(wanted, dry_run=True)
        return [compare_clocks(to_seconds(made.metadata.creationTimestamp), before, time.time())]
    except Forbidden:
        return [build_ok("clock", "not compared: the check requires permission to create namespaces")]
    except ApiError as error:
        return [build_warning("clock", f"not compared: {error}")]
    finally:
        await connection.close()


def compare_clocks(there: float, before: float, after: float) -> Finding:
    """Compare clocks. `there` is the server's time of a moment between `before` and `after`, all in Unix seconds."""
    difference = max(there - after, before - there - 1, 0.0)
    if difference <= SKEW:
        return build_ok("clock", "in agreement with the server")
    side = "ahead of" if there > after else "behind"
    message = f"the clock of the server is {difference:,.0f} s {side} the clock of this machine"
    return build_warning("clock", message, "synchronize the clocks with NTP: certificates, events and deadlines depend on them")


async def check_leaders(config: ClientConfig, expected: Sequence[str]) -> Sequence[Finding]:
    """Check that the elections have leaders. `expected` are the elections that should have a leader."""
    connection = Connection(config.endpoints, tls=config.tls)
    try:
        result = await Client(connection).elections.list()
    except ApiError as error:
        return [build_warning("leaders", f"not known: {error}")]
    finally:
        await connection.close()
    return compare_leaders({election.name: election.holder for election in result}, expected)


def compare_leaders(holders: Mapping[str, str], expected: Sequence[str]) -> Sequence[Finding]:
    hint = "`pinnace status` shows the candidates, `pinnace leader history NAME` shows previous leaders"
    missing = [
        build_problem("leaders", f'election "{name}" has no leader', hint.replace("NAME", name))
        for name in expected
        if not holders.get(name)
    ]
    said = ", ".join(f"{holder} leads {name}" for name, holder in sorted(holders.items()) if holder)
    return [*missing, *([build_ok("leaders", said)] if said else [])]


async def check_services(config: ClientConfig, state: ClusterState) -> Sequence[Finding]:
    """Connect to the services of a local cluster through its proxy: one TCP port of each service with ready endpoints."""
    connection = Connection(config.endpoints, tls=config.tls)
    try:
        client = Client(connection)
        result = (await client.of(SERVICES).list()).items
        slices = (await client.of(ENDPOINT_SLICES).list()).items
    except ApiError as error:
        return [build_warning("services", f"not known: {error}")]
    finally:
        await connection.close()
    ready = {
        f"{slice_.metadata.namespace}/{slice_.metadata.labels.get(SERVICE_LABEL, '')}"
        for slice_ in slices
        if any(endpoint.conditions.ready for endpoint in slice_.endpoints)
    }
    asked = [service for service in result if store_key(service) in ready and _first_tcp_port(service)][:MAX_SERVICES]
    silent = [store_key(each) for each, why in zip(asked, await asyncio.gather(*map(_is_refused, asked)), strict=True) if why]
    if silent:
        names = ", ".join(silent[:SHOWN]) + (f" and {len(silent) - SHOWN} more" if len(silent) > SHOWN else "")
        log = ClusterFolder(state.spec.data_dir).log(state.processes_of(PROXY)[0].name)
        hint = f"`pinnace describe service` shows the endpoints; see the log of the proxy, {log}"
        return [build_problem("services", f"no connection to {names}", hint)]
    return [build_ok("services", f"services with ready endpoints that accept connections: {len(asked)} of {len(asked)}")]


def _first_tcp_port(service: Service) -> int:
    """Return the first TCP port; 0 if there is none, or the service has no address."""
    if service.spec.clusterIP in ("", "None"):
        return 0
    return next((port.port for port in service.spec.ports if port.protocol in ("", "TCP")), 0)


async def _is_refused(service: Service) -> bool:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, writer = await asyncio.open_connection(service.spec.clusterIP, _first_tcp_port(service))
    except (OSError, TimeoutError):
        return True
    writer.close()
    return False


async def check_processes(state: ClusterState) -> Sequence[Finding]:
    if state.stopped:
        folder = state.spec.data_dir
        return [build_problem("processes", f"the cluster in {folder} is stopped", f"pinnace start{data_dir_flag(folder)}")]
    reasons = zip(state.processes, await process_problems(state), strict=True)
    findings = [_describe_unready_process(state, record, reason) for record, reason in reasons if reason]
    return findings or [build_ok("processes", f"all {len(state.processes)} of the cluster in {state.spec.data_dir} are ready")]


def list_expected_elections(state: ClusterState) -> list[str]:
    """Return the elections that should have a leader."""
    return [election for component, election in ELECTIONS.items() if state.processes_of(component)]


def _describe_unready_process(state: ClusterState, record: ProcessRecord, reason: str) -> Finding:
    folder = state.spec.data_dir
    log = f"see its log, {ClusterFolder(folder).log(record.name)}"
    if reason != DEAD:
        if record.component == ETCD and "NOSPACE" in reason:
            return build_problem(
                "processes", f"{record.name} is not ready: out of space, only reads and deletes are possible", OUT_OF_SPACE
            )
        return build_problem("processes", f"{record.name} is not ready: {reason}", log)
    taken = [item for item in {record.plan.address, record.plan.http} if not is_port_free(item)]
    if taken:
        hint = "`pinnace stop` and `pinnace start` select another port; `ss -ltnp` shows the program"
        return build_problem("processes", f"{record.name} is not running, and another program uses {taken[0]}", hint)
    if lost := etcd.lost_member_hint(record.name, ClusterFolder(folder).log_tail(record.name)):
        return build_problem("processes", f"{record.name} is not running", lost)
    return build_problem(
        "processes", f"{record.name} is not running", f"pinnace start{data_dir_flag(folder)} {record.name}; {log}"
    )
