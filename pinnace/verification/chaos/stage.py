"""A cluster for faults. All connections between its processes use links, and its history is recorded from etcd's first
revision.

A directory contains the results of a run: the history (chaos.jsonl, etcd.jsonl, processes.jsonl, a run log for each kubelet)
the logs, and the profiles of the event loops.
"""

import asyncio
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pinnace.cluster import certificates, processes
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.links import HelperProcess, Links, dying_with_parent
from pinnace.cluster.observer import ProcessRecorder
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import (
    APISERVER,
    ETCD,
    GATEWAY,
    KUBELET,
    NODE_PREFIX,
    SCHEDULER,
    ClusterSpec,
    ProcessHooks,
    pki_folder,
)
from pinnace.cluster.startup import StartProgress
from pinnace.history import records
from pinnace.history.records import Record
from pinnace.pki import Subject
from pinnace.pki.folder import CertificateSpec
from pinnace.pki.folder import PkiFolder as Pki
from pinnace.runtime.steps import PROFILE
from pinnace.verification.bench.calibration import START_TIMEOUT
from pinnace.verification.chaos import ChaosError
from pinnace.verification.chaos.bystander import READ_RATE, WRITE_RATE, Bystander, create_gateway_user
from pinnace.verification.chaos.cluster_under_test import ClusterUnderTest
from pinnace.verification.chaos.host import TmpfsDisk, WallClocks, mount_disk
from pinnace.verification.chaos.load import BYSTANDER, GATEWAY_BYSTANDER
from pinnace.verification.chaos.saboteur import CONFIG

POLL = 0.05
END_TIMEOUT = 30.0
CATCH_UP = 30.0
"""Seconds within which the recorder must be up to date after its start."""
JOURNAL, STORED, PROCESSES, RUN_LOG = "chaos.jsonl", "etcd.jsonl", "processes.jsonl", "{}.run.jsonl"
LOGS, PROFILES = "logs", "profiles"
SERVICES = "127.254.0.0/16"
"""The addresses of services of a cluster with a proxy, which must be able to listen on them."""
JSON_LOGS = ("--logging-format", "json")
"""The log format of all components. Timelines and verdicts read the events in their logs (pinnace/runtime/logs.py)."""


class EtcdHistoryRecorder:
    """An async context manager that records etcd's history. `etcd`: arguments with etcd's addresses and the client certificate.
    `log`: the file for stderr."""

    def __init__(self, etcd: Sequence[str], output: Path, log: Path) -> None:
        self.output = output
        self._etcd = etcd
        self._log = log
        self._progress = output.with_name(f"{output.name}.progress")

    async def __aenter__(self) -> Self:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "pinnace.apiserver.storage.etcd.record", *self._etcd]
            self._process = await asyncio.create_subprocess_exec(
                *dying_with_parent(command), "--output", self.output,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the recorder, and return when all received changes are in the file."""
        if self._process.returncode is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(END_TIMEOUT):
                await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def archive_output(self, output: Path) -> None:
        """Stop the recorder and rename its output. `restart` records another history of etcd from its start."""
        await self.__aexit__()
        self.output.rename(output)
        self._progress.unlink()

    async def restart(self) -> None:
        await self.__aenter__()

    @property
    def revision(self) -> int:
        """The revision up to which the history is complete. Raises ChaosError if the recorder has ended."""
        if self._process.returncode is not None:
            raise ChaosError(f"etcd's recorder has ended; see the last line of {self._log}")
        try:
            return int(self._progress.read_text())
        except FileNotFoundError:
            return 0

    async def wait_for_revision(self, revision: int, timeout: float) -> None:
        """Wait until the history is recorded up to this revision. Raises ChaosError."""
        deadline = time.monotonic() + timeout
        while self.revision < revision:
            if time.monotonic() > deadline:
                raise ChaosError(f"etcd's history is only recorded up to revision {self.revision}, not {revision}")
            await asyncio.sleep(POLL)


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """Requirements of some faults. `clocks`: wall clocks that can be changed. `disks`: the number of etcd members (the last
    ones) that have a separate disk."""

    clocks: WallClocks | None = None
    disks: int = 0


NO_OPTIONS = ChaosOptions()


@dataclass(frozen=True, slots=True)
class ChaosCluster:
    """A running cluster with its recorder. `output`: the directory of the histories."""

    cluster: Cluster
    under_test: ClusterUnderTest
    recorder: EtcdHistoryRecorder
    output: Path

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return [f"{NODE_PREFIX}{number}" for number in range(self.cluster.spec.nodes)]

    @property
    def gateways(self) -> list[str]:
        """The addresses of the gateways."""
        return [record.plan.address for record in self.cluster.state.processes_of(GATEWAY)]

    @property
    def bystander(self) -> Bystander:
        """A user that is independent of the load."""
        folder = pki_folder(self.cluster.spec.data_dir)
        Pki(folder).provide([CertificateSpec(BYSTANDER, Subject(BYSTANDER, ("system:masters",)))], datetime.now(UTC))
        return Bystander(
            self.cluster.endpoints, certificates.component_files(folder, BYSTANDER), self.output / f"{BYSTANDER}.jsonl"
        )

    @asynccontextmanager
    async def start_gateway_bystander(self) -> AsyncIterator[None]:
        """Return a user of the gateways, if there are any. Raises ApiError."""
        if not self.gateways:
            yield
            return
        tls = await create_gateway_user(self.cluster, self.under_test.client)
        async with Bystander(self.gateways, tls, self.output / f"{GATEWAY_BYSTANDER}.jsonl", (READ_RATE, WRITE_RATE)):
            yield


@asynccontextmanager
async def start_chaos_cluster(
    spec: ClusterSpec, folder: Path, progress: StartProgress, props: ChaosOptions = NO_OPTIONS
) -> AsyncIterator[ChaosCluster]:
    """Start a cluster; the data directory of `spec` is ignored. Afterwards all files are in `folder`, and no process is left.
    Raises ChaosError, ClusterError, HelperError."""
    clocks = props.clocks
    members = [f"{ETCD}-{number}" for number in range(spec.etcd_members)][spec.etcd_members - props.disks :]
    mounts = {member: folder / f"{member}.disk" for member in members}

    (folder / PROFILES).mkdir(exist_ok=True)
    saboteur = folder / "schedulers.yaml"
    saboteur.write_text(CONFIG)

    tokens = folder / "tokens.csv"
    tokens.write_text(f"{secrets.token_hex()},somebody,1\n")
    ports = PortAllocator()

    def arguments(process: str) -> Sequence[str]:
        return () if process.startswith(ETCD) else (*JSON_LOGS, *parts(process))

    def parts(process: str) -> Sequence[str]:
        if process.startswith(APISERVER):
            tokens_ = ("--token-auth-file", str(tokens), "--token-listen", f"127.0.0.1:{ports.next()}")
            return (*tokens_, "--service-cluster-ip-range", SERVICES) if spec.proxy else tokens_
        if process.startswith(SCHEDULER):
            return ("--config", str(saboteur))
        return ("--run-log", str(folder / RUN_LOG.format(process))) if process.startswith(KUBELET) else ()

    def etcd_data(member: str) -> Path | None:
        return mounts[member] / "data" if member in mounts else None

    def environment(process: str) -> Mapping[str, str]:
        if process.startswith(ETCD):
            return {}
        profile = {PROFILE: str(folder / PROFILES / f"{process}.jsonl")}
        return profile if clocks is None else {**clocks.environment(process), **profile}

    count = (spec.schedulers + spec.kubelets + spec.etcd_members + spec.gateways + spec.proxy) * spec.apiservers
    data_dir = folder / "cluster"
    guarded = [f"--disk={mount}" for mount in mounts.values()]
    async with (
        HelperProcess("pinnace.verification.chaos.reaper", "--data-dir", str(data_dir), *guarded),
        _mount_disks(mounts) as disks,
        Links(count) as links,
    ):
        cluster = Cluster(
            replace(spec, data_dir=data_dir), ProcessHooks(links.assign_address, arguments, environment, etcd_data)
        )
        await cluster.up(progress, timeout=START_TIMEOUT)
        try:
            addresses = ",".join(record.plan.address for record in cluster.state.processes_of(ETCD))
            etcd = ("--etcd", addresses, *certificates.etcd_arguments(pki_folder(data_dir)))
            async with (
                cluster.client() as client,
                EtcdHistoryRecorder(etcd, folder / STORED, folder / "recorder.log") as recorder,
                ProcessRecorder(lambda: cluster.state.processes, folder / PROCESSES),
                HelperProcess("pinnace.apiserver.storage.etcd.surgery", *etcd) as surgeon,
            ):
                await recorder.wait_for_revision((await client.namespaces.list()).resource_version, CATCH_UP)
                under_test = ClusterUnderTest(cluster, links, surgeon, client, clocks, lambda: recorder.revision, disks)
                yield ChaosCluster(cluster, under_test, recorder, folder)
        finally:
            progress.waiting("the processes to end")
            try:
                await processes.stop_processes(cluster.state.processes)  # stopped first, so that the logs include the shutdown
                with suppress(OSError):  # for example, a full disk: most of the verdict does not need logs
                    shutil.copytree(cluster.folder.logs, folder / LOGS, dirs_exist_ok=True)
            finally:
                await cluster.take_down_at_exit()


@asynccontextmanager
async def _mount_disks(mounts: Mapping[str, Path]) -> AsyncIterator[Mapping[str, TmpfsDisk]]:
    async with AsyncExitStack() as stack:
        yield {member: await stack.enter_async_context(mount_disk(path)) for member, path in mounts.items()}


def read_run_history(folder: Path) -> Iterator[Record]:
    """Yield the history of a run. Raises HistoryError, OSError."""
    for path in (folder / JOURNAL, *sorted(set(folder.glob("*.jsonl")) - {folder / JOURNAL})):
        yield from records.read_history(path)
