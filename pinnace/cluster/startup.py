"""The progress of a start, and the wait until a cluster is ready. Each check returns None when nothing is missing."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.cluster import view
from pinnace.cluster.errors import StartFailed, StartTimeout
from pinnace.cluster.etcd import lost_member_hint
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.processes import find_running
from pinnace.cluster.spec import APISERVER, ETCD, KUBELET, SCHEDULER, ProcessRecord
from pinnace.cluster.view import is_stopping

POLL = 0.05


class StartProgress(Protocol):
    def waiting(self, what: str) -> None:
        """Start a step and replace the previous one."""
        ...

    def done(self, what: str) -> None:
        """A step is finished."""
        ...

    def warn(self, what: str) -> None:
        """A warning that does not stop the work."""
        ...


class SilentProgress:
    def waiting(self, what: str) -> None:
        pass

    def done(self, what: str) -> None:
        pass

    def warn(self, what: str) -> None:
        pass


SILENT_PROGRESS = SilentProgress()


@dataclass(frozen=True, slots=True)
class MissingCondition:
    """`process`: the one whose log most likely shows the cause."""

    what: str
    process: str


class StartWaiter:
    """Conditions for the start of the cluster in this directory."""

    def __init__(self, folder: ClusterFolder) -> None:
        self._folder = folder
        self._missing = MissingCondition("processes to start", "")

    async def wait_until(
        self,
        question: Callable[[], Awaitable[MissingCondition | None]],
        look: Callable[[], None],
        progress: StartProgress,
        *,
        poll: float = POLL,
    ) -> None:
        """Return when nothing is missing. Calls `look` in between, which raises an error if waiting is useless."""
        while missing := await question():
            look()
            self._missing = missing
            progress.waiting(missing.what)
            await asyncio.sleep(poll)

    @asynccontextmanager
    async def deadline(self, seconds: float) -> AsyncIterator[None]:
        """Raises StartTimeout with the last missing condition."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise StartTimeout(
                f"still waiting after {seconds:g} s for {self._missing.what}",
                logs={self._missing.process: self._folder.log_tail(self._missing.process)},
                paths={self._missing.process: self._folder.log(self._missing.process)},
                hint="use a longer --timeout",
            ) from None


def exited_during_start(name: str, code: int | None, folder: ClusterFolder) -> StartFailed:
    """A process exited during its start. `code`: None if unknown (see Cluster.exit_code)."""
    tail = folder.log_tail(name)
    how = "ended" if code is None else f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
    hint = lost_member_hint(name, tail) or folder.full_disk_hint(tail)
    return StartFailed(f"{name} {how} while it was starting", logs={name: tail}, paths={name: folder.log(name)}, hint=hint)


async def check_readiness(records: Sequence[ProcessRecord]) -> MissingCondition | None:
    """The readiness of these processes."""
    reasons = await asyncio.gather(*map(view.process_problem, records))
    return missing_readiness([(record.name, why) for record, why in zip(records, reasons, strict=True)])


async def check_quorum(records: Sequence[ProcessRecord]) -> MissingCondition | None:
    """The readiness of enough processes of one component for the next ones."""
    reasons = await asyncio.gather(*map(view.process_problem, records))
    if reasons.count("") >= _quorum_size(records):
        return None
    return missing_readiness([(record.name, why) for record, why in zip(records, reasons, strict=True)])


def require_quorum(records: Sequence[ProcessRecord]) -> None:
    """Raises StartFailed if too few processes of one component run."""
    run = sum(map(bool, map(find_running, records)))
    if run < _quorum_size(records):
        what = f"{run} of {len(records)} processes of {records[0].component}"
        raise StartFailed(f"{what} run, and what needs {_quorum_size(records)} was not started")


def _quorum_size(records: Sequence[ProcessRecord]) -> int:
    """A majority of etcd's members, one API server, and none of the others."""
    component = records[0].component if records else ""
    return {ETCD: len(records) // 2 + 1, APISERVER: 1}.get(component, 0)


def missing_readiness(reasons: Sequence[tuple[str, str]]) -> MissingCondition | None:
    """The processes that are not ready, grouped by reason."""
    names: dict[str, list[str]] = {}
    for name, why in reasons:
        names.setdefault(why, []).append(name)
    names.pop("", None)
    if not names:
        return None
    return MissingCondition(
        "; ".join(f"{', '.join(group)} ({why})" for why, group in names.items()), next(iter(names.values()))[0]
    )


async def check_settled(records: Sequence[ProcessRecord]) -> MissingCondition | None:
    """No process is stopping."""
    reasons = await asyncio.gather(*map(view.process_problem, records))
    return missing_readiness(
        [(record.name, why if is_stopping(why) else "") for record, why in zip(records, reasons, strict=True)]
    )


async def check_all_nodes(client: Client) -> MissingCondition | None:
    """All existing nodes are Ready."""
    try:
        ready = [view.is_node_ready(node) for node in (await client.nodes.list()).items]
    except ApiError as error:
        return MissingCondition(f"nodes to be Ready ({error})", f"{KUBELET}-0")
    return None if all(ready) else MissingCondition(f"nodes to be Ready: {sum(ready):,} of {len(ready):,}", f"{KUBELET}-0")


async def check_node_count(client: Client, expected: int) -> MissingCondition | None:
    """This number of nodes is Ready."""
    try:
        count = await view.count_ready_nodes(client)
    except ApiError as error:
        return MissingCondition(f"nodes to be Ready ({error})", f"{KUBELET}-0")
    return MissingCondition(f"nodes to be Ready: {count:,} of {expected:,}", f"{KUBELET}-0") if count < expected else None


async def check_leader(client: Client) -> MissingCondition | None:
    """A scheduler leads."""
    return None if await view.try_scheduler_leader(client) else MissingCondition("a scheduler to lead", f"{SCHEDULER}-0")
