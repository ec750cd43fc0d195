"""A temporary cluster for one measurement, with a calibrated etcd. The calibration is the rate of transactions that write one
key each.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.cluster import certificates
from pinnace.cluster.cluster import Cluster, Hook
from pinnace.cluster.links import Links
from pinnace.cluster.spec import APISERVER, ETCD, PLAIN, SCHEDULER, ClusterSpec, ClusterState, ProcessHooks, Wiring, pki_folder
from pinnace.cluster.startup import StartProgress
from pinnace.verification.bench import BenchError

START_TIMEOUT = 180.0
"""Seconds. Starting thousands of nodes takes time."""
CALIBRATION_SECONDS = 2.0


@asynccontextmanager
async def scratch_cluster(
    spec: ClusterSpec, progress: StartProgress, with_etcd: Hook | None = None, hooks: ProcessHooks = PLAIN
) -> AsyncIterator[Cluster]:
    """Start a cluster with the sizes of `spec`; the data directory of `spec` is ignored. `with_etcd`: see `Cluster.up`."""
    with tempfile.TemporaryDirectory(prefix="pinnace-") as folder:
        cluster = Cluster(replace(spec, data_dir=Path(folder) / "cluster"), hooks)
        await cluster.up(progress, timeout=START_TIMEOUT, with_etcd=with_etcd)
        try:
            yield cluster
        finally:
            progress.waiting("the processes to end")
            await cluster.take_down_at_exit()


@dataclass(frozen=True, slots=True)
class Calibration:
    """The rate of etcd transactions, which makes results of different machines comparable."""

    transactions_per_s: float
    callers: int


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """A cluster for a measurement. There is one client for each API server, so that load can be distributed evenly."""

    cluster: Cluster
    calibration: Calibration
    clients: list[Client]
    links: Links | None = None
    """The links between the schedulers and the API servers, if requested."""


@asynccontextmanager
async def calibrated_cluster(
    spec: ClusterSpec, progress: StartProgress, *, linked: bool = False, flags: Sequence[str] = ()
) -> AsyncIterator[BenchCluster]:
    """Start a cluster. etcd is calibrated before the other processes start. `linked`: the schedulers connect to the API servers
    through links. `flags`: additional flags of the API servers. Raises BenchError, ClusterError, HelperError."""
    calibrations: list[Calibration] = []

    async def measure(state: ClusterState) -> None:
        progress.waiting(f"the calibration of etcd ({CALIBRATION_SECONDS:g} s)")
        shown = certificates.etcd_arguments(pki_folder(state.spec.data_dir))
        calibrations.append(await calibrate(state.processes_of(ETCD)[0].plan.address, shown))

    async with AsyncExitStack() as stack:
        links = await stack.enter_async_context(Links(spec.schedulers * spec.apiservers)) if linked else None
        hooks = replace(ProcessHooks(_of_schedulers(links)) if links else PLAIN, arguments=_of_apiservers(flags))
        cluster = await stack.enter_async_context(scratch_cluster(spec, progress, measure, hooks))
        connections = [Connection([endpoint], tls=cluster.tls) for endpoint in cluster.endpoints]
        for connection in connections:
            stack.push_async_callback(connection.close)
        yield BenchCluster(cluster, calibrations[0], [Client(connection) for connection in connections], links)


def _of_schedulers(links: Links) -> Wiring:
    def wire(source: str, target: str, address: str) -> str:
        return links.assign_address(source, target, address) if source.startswith(SCHEDULER) else address

    return wire


def _of_apiservers(flags: Sequence[str]) -> Callable[[str], Sequence[str]]:
    return lambda process: flags if process.startswith(APISERVER) else ()


async def calibrate(etcd: str, shown: Sequence[str]) -> Calibration:
    """Calibrate etcd in a separate process, because only the API server package may use etcd. `shown`: arguments with the
    client certificate for etcd. Raises BenchError."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pinnace.apiserver.storage.etcd.calibrate", "--etcd", etcd, *shown,
        "--seconds", str(CALIBRATION_SECONDS),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise BenchError(f"etcd at {etcd} calibration failed: {reason}")
    return Calibration(**{name: value for name, value in json.loads(output).items() if name in Calibration.__slots__})
