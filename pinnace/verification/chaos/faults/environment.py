"""Faults in the environment of processes: limits of file descriptors and memory, full logs, replaced and expired certificates,
and wrong wall clocks.
"""

import asyncio
import random
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pinnace.cluster.certificates import CONTROLLERS
from pinnace.cluster.certificates import SCHEDULER as SCHEDULER_CERTIFICATE
from pinnace.cluster.links import Link
from pinnace.cluster.spec import APISERVER, ETCD, KUBELET, SCHEDULER, pki_folder
from pinnace.pki import folder as pki
from pinnace.pki.authority import LIFETIME
from pinnace.pki.folder import CLUSTER_CA, ETCD_CA, AuthoritySpec, PkiFolder
from pinnace.verification.bench import BenchError, usage
from pinnace.verification.chaos.cluster_under_test import ClusterUnderTest, NotPossible
from pinnace.verification.chaos.faults.base import MeasuringFault, ProcessFault
from pinnace.verification.chaos.host import WallClocks

FULL = Path("/dev/full")
"""A file to which each write fails with ENOSPC, as on a full disk."""
AUDIT = "--audit-log-path"
LOST = "apiserver_audit_error_total"
COUNTED_WITHIN = 8.0
"""Seconds within which a write of the load must reach a restarted API server, whose audit line is then lost."""
POLL = 0.1
SPARE_DESCRIPTORS = 2
MB = 1 << 20
SPARE_MEMORY = (8 * MB, 64 * MB)
"""Bytes of address space that a process can still allocate."""
_TO_FULL = f"""\
import os, sys
for output in (1, 2):
    os.dup2(os.open("{FULL}", os.O_WRONLY), output)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
SOON = timedelta(seconds=3)
"""The lifetime of a certificate that expires while connections use it."""
SCHEDULERS, SERVERS, ETCD_CLIENTS = "schedulers", "apiservers", "etcd-clients"
"""Targets: all processes that share a certificate."""
HOUR = 3600
DRIFT_INTERVAL = 0.5


class _ResourceLimit:
    """A lower soft limit of one process, which is restored at the end. The process may log errors meanwhile; with `may_end`, it
    may also end."""

    which = resource.RLIMIT_NOFILE
    may_end = False

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._under_test = under_test
        self._target = target
        self._random = rng
        self._name = ""
        self._pid = 0
        self._before: tuple[int, int] | None = None
        self.details = ""

    async def inject(self) -> None:
        self._name = await self._under_test.resolve_target(self._target)
        if not await self._under_test.wait_until_ready(self._name):  # a process that cannot start exits correctly
            raise NotPossible(f"{self._name} is not ready")
        self._pid = self._under_test.cluster.pid(self._name)
        try:
            soft = self.new_limit(self._pid)
            _, hard = before = resource.prlimit(self._pid, self.which)
            self._under_test.allow_errors(self._name, may_end=self.may_end)
            self._before = before
            resource.prlimit(self._pid, self.which, (soft, hard))
        except (OSError, ProcessLookupError) as error:
            raise NotPossible(f"{self._name}: {error}") from error
        self.details = f"{self._name}, {self.describe_limit(soft)}"
        links = [link for link in self._under_test.links.all_links if self._name in link]
        await self._under_test.links.reset(links)  # connections that the process cannot reopen are lost

    async def undo(self) -> None:
        before, self._before = self._before, None
        if before is None:
            return
        if self._under_test.cluster.pid(self._name) == self._pid:
            resource.prlimit(self._pid, self.which, before)
        if await self._under_test.end_excuse(self._name):
            self.details += ", and it ended"

    def new_limit(self, pid: int) -> int:
        """Return the new soft limit. Raises OSError."""
        raise NotImplementedError

    def describe_limit(self, limit: int) -> str:
        raise NotImplementedError


class FewDescriptors(_ResourceLimit):
    """A process that can open almost no files and connections, and whose connections to other components are reset."""

    def new_limit(self, pid: int) -> int:
        return max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()) + 1 + SPARE_DESCRIPTORS

    def describe_limit(self, limit: int) -> str:
        return f"{limit} descriptors"


class LittleMemory(_ResourceLimit):
    """A process that can allocate almost no memory. It may end, because the kernel would also end it."""

    which = resource.RLIMIT_AS
    may_end = True

    def new_limit(self, pid: int) -> int:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        return pages * resource.getpagesize() + self._random.choice(SPARE_MEMORY)

    def describe_limit(self, limit: int) -> str:
        return f"{limit // MB} MB of address space"


class _RestartWithArguments(ProcessFault, MeasuringFault):
    """A process that is restarted with other options, and restored at the end. It must become ready nevertheless."""

    async def inject(self) -> None:
        self._name = self.details = await self._under_test.resolve_target(self._target)
        plan = self._under_test.cluster.state.find_process(self._name).plan
        self._under_test.allow_errors(self._name, may_end=False)
        await self._under_test.restart_with_plan(self._name, replace(plan, argv=tuple(self.changed_argv(plan.argv))))
        self.read(self._name, "ready", float(await self._under_test.wait_until_ready(self._name)), least=1)

    async def undo(self) -> None:
        if self._name:
            await self._under_test.restore_original_plan(self._name)
            await self._under_test.end_excuse(self._name)

    def changed_argv(self, argv: Sequence[str]) -> list[str]:
        raise NotImplementedError


class FullLog(_RestartWithArguments):
    """The log of a process cannot be written."""

    def changed_argv(self, argv: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", _TO_FULL, *argv[1:]]


class FullAudit(_RestartWithArguments):
    """The audit log of an API server cannot be written. The server must count the lost lines."""

    async def inject(self) -> None:
        await super().inject()
        deadline, lost = time.monotonic() + COUNTED_WITHIN, 0
        while not lost and time.monotonic() < deadline:
            await asyncio.sleep(POLL)
            with suppress(BenchError):
                lost = await usage.read_metric(self._under_test.cluster.state.find_process(self._name).plan.http, LOST) or 0
        self.read(self._name, LOST, lost, least=1)

    def changed_argv(self, argv: Sequence[str]) -> list[str]:
        return [*argv, AUDIT, str(FULL)]


class LogRotation:
    """All certificates are replaced and all connections are reset, so that new connections use the new certificates."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._under_test = under_test
        self.details = ""

    async def inject(self) -> None:
        kubelets = [record.name for record in self._under_test.cluster.state.processes_of(KUBELET)]
        names = [pki.APISERVER, pki.ADMIN, pki.KUBELET_CLIENT, SCHEDULER_CERTIFICATE, CONTROLLERS, *kubelets]
        of_etcd = [pki.ETCD_SERVER, pki.ETCD_PEER, pki.ETCD_CLIENT]
        await _reissue_certificates(self._under_test, CLUSTER_CA, names)
        await _reissue_certificates(self._under_test, ETCD_CA, of_etcd)
        self.details = f"{len(names) + len(of_etcd)} certificates"
        await self._under_test.links.reset(self._under_test.links.all_links)

    async def undo(self) -> None:
        """Nothing to undo."""


@dataclass(frozen=True, slots=True)
class _ServedFiles:
    """A certificate: its CA, its name, and the links that use it."""

    ca: AuthoritySpec
    name: str
    links: tuple[Link, ...]


class ExpiredCertificates:
    """A certificate expires while connections use it. The connections are reset, and new ones are rejected. At the end, the
    certificate is replaced without restarting a process."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._under_test = under_test
        self._resolve_served_files = _resolve_served_files(under_test, target)
        self._replaced = False
        self.details = f"{self._resolve_served_files.name}.crt"

    async def inject(self) -> None:
        self._replaced = True
        await _reissue_certificates(self._under_test, self._resolve_served_files.ca, [self._resolve_served_files.name], SOON)
        await self._under_test.links.reset(self._resolve_served_files.links)
        await asyncio.sleep(SOON.total_seconds())
        await self._under_test.links.reset(self._resolve_served_files.links)

    async def undo(self) -> None:
        if self._replaced:
            await _reissue_certificates(self._under_test, self._resolve_served_files.ca, [self._resolve_served_files.name])
            self._replaced = False


def _resolve_served_files(under_test: ClusterUnderTest, target: str) -> _ServedFiles:
    def links(source: str, to: str) -> tuple[Link, ...]:
        return tuple(link for link in under_test.links.all_links if link[0].startswith(source) and link[1].startswith(to))

    if target == SCHEDULERS:
        return _ServedFiles(CLUSTER_CA, SCHEDULER_CERTIFICATE, links(SCHEDULER, APISERVER))
    if target == SERVERS:
        return _ServedFiles(CLUSTER_CA, pki.APISERVER, links("", APISERVER))
    if target == ETCD_CLIENTS:
        return _ServedFiles(ETCD_CA, pki.ETCD_CLIENT, links(APISERVER, ETCD))
    return _ServedFiles(CLUSTER_CA, target, links(target, APISERVER))


async def _reissue_certificates(
    under_test: ClusterUnderTest, ca: AuthoritySpec, names: Sequence[str], lifetime: timedelta = LIFETIME
) -> None:
    folder = PkiFolder(pki_folder(under_test.cluster.spec.data_dir), ca)
    await asyncio.to_thread(folder.reissue, names, datetime.now(UTC), lifetime)


class ClockStep:
    """The wall clock of a process is moved forward or back by an hour, and corrected at the end. Monotonic clocks are not
    changed."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._under_test = under_test
        self._target = target
        self._seconds = rng.choice((HOUR, -HOUR))
        self._name = ""
        self.details = ""

    async def inject(self) -> None:
        if self._under_test.clocks is None:
            raise NotPossible("libfaketime is not installed")
        self._name = await self._under_test.resolve_target(self._target)
        self.details = f"{self._name}, {self._seconds:+d} s"
        self._under_test.clocks.set_offset(self._name, self._seconds)

    async def undo(self) -> None:
        if self._name and self._under_test.clocks:
            self._under_test.clocks.set_offset(self._name, 0)


class ClockRate:
    """The wall clock of a process runs at twice or half the speed, in steps of 500 ms, and is corrected at the end. The rates
    of libfaketime are not used, because they also change the duration of sleeps."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._under_test = under_test
        self._target = target
        self._drift = rng.choice((1.0, -0.5))
        self._name = ""
        self._drifting: asyncio.Task[None] | None = None
        self.details = ""

    async def inject(self) -> None:
        if self._under_test.clocks is None:
            raise NotPossible("libfaketime is not installed")
        self._name = await self._under_test.resolve_target(self._target)
        self.details = f"{self._name}, {self._drift:+g} s per second"
        self._drifting = asyncio.create_task(self._increase_drift(self._under_test.clocks))

    async def undo(self) -> None:
        if self._drifting is not None:
            self._drifting.cancel()
            await asyncio.wait((self._drifting,))
        if self._name and self._under_test.clocks:
            self._under_test.clocks.set_offset(self._name, 0)

    async def _increase_drift(self, clocks: WallClocks) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(DRIFT_INTERVAL)
            clocks.set_offset(self._name, self._drift * (time.monotonic() - began))
