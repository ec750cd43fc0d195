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
from pinnace.cluster.etcd import lost_member
from pinnace.cluster.folder import Folder
from pinnace.cluster.processes import running
from pinnace.cluster.spec import APISERVER, ETCD, KUBELET, SCHEDULER, ProcessRecord
from pinnace.cluster.view import ending


class Progress(Protocol):
    def waiting(self, what: str) -> None:
        """Starts a step and replaces the previous one."""
        ...

    def done(self, what: str) -> None:
        """A step is finished."""
        ...

    def warn(self, what: str) -> None:
        """A warning that does not stop the work."""
        ...


class Silent:
    def waiting(self, what: str) -> None:
        pass

    def done(self, what: str) -> None:
        pass

    def warn(self, what: str) -> None:
        pass


SILENT = Silent()


POLL = 0.05


@dataclass(frozen=True, slots=True)
class Missing:
    """`process`: the one whose log most likely shows the cause."""

    what: str
    process: str


class Waiting:
    """Conditions for the start of the cluster in this directory."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._missing = Missing("processes to start", "")

    async def until(
        self,
        question: Callable[[], Awaitable[Missing | None]],
        look: Callable[[], None],
        progress: Progress,
        *,
        poll: float = POLL,
    ) -> None:
        """Returns when nothing is missing. Calls `look` in between, which raises an error if waiting is useless."""
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


def ended(name: str, code: int | None, folder: Folder) -> StartFailed:
    """A process exited during its start. `code`: None if unknown (see Cluster.exit_code)."""
    tail = folder.log_tail(name)
    how = "ended" if code is None else f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
    hint = lost_member(name, tail) or folder.full_disk_hint(tail)
    return StartFailed(f"{name} {how} while it was starting", logs={name: tail}, paths={name: folder.log(name)}, hint=hint)


async def readiness(records: Sequence[ProcessRecord]) -> Missing | None:
    """The readiness of these processes."""
    reasons = await asyncio.gather(*map(view.unready, records))
    return unready([(record.name, why) for record, why in zip(records, reasons, strict=True)])


async def service(records: Sequence[ProcessRecord]) -> Missing | None:
    """The readiness of enough processes of one component for the next ones."""
    reasons = await asyncio.gather(*map(view.unready, records))
    if reasons.count("") >= _quorum(records):
        return None
    return unready([(record.name, why) for record, why in zip(records, reasons, strict=True)])


def enough(records: Sequence[ProcessRecord]) -> None:
    """Raises StartFailed if too few processes of one component run."""
    run = sum(map(bool, map(running, records)))
    if run < _quorum(records):
        what = f"{run} of {len(records)} processes of {records[0].component}"
        raise StartFailed(f"{what} run, and what needs {_quorum(records)} was not started")


def _quorum(records: Sequence[ProcessRecord]) -> int:
    """A majority of etcd's members, one API server, and none of the others."""
    component = records[0].component if records else ""
    return {ETCD: len(records) // 2 + 1, APISERVER: 1}.get(component, 0)


def unready(reasons: Sequence[tuple[str, str]]) -> Missing | None:
    """The processes that are not ready, grouped by reason."""
    names: dict[str, list[str]] = {}
    for name, why in reasons:
        names.setdefault(why, []).append(name)
    names.pop("", None)
    if not names:
        return None
    return Missing("; ".join(f"{', '.join(group)} ({why})" for why, group in names.items()), next(iter(names.values()))[0])


async def settled(records: Sequence[ProcessRecord]) -> Missing | None:
    """No process is stopping."""
    reasons = await asyncio.gather(*map(view.unready, records))
    return unready([(record.name, why if ending(why) else "") for record, why in zip(records, reasons, strict=True)])


async def all_nodes(client: Client) -> Missing | None:
    """All existing nodes are Ready."""
    try:
        ready = [view.is_ready(node) for node in (await client.nodes.list()).items]
    except ApiError as error:
        return Missing(f"nodes to be Ready ({error})", f"{KUBELET}-0")
    return None if all(ready) else Missing(f"nodes to be Ready: {sum(ready):,} of {len(ready):,}", f"{KUBELET}-0")


async def nodes(client: Client, expected: int) -> Missing | None:
    """This number of nodes is Ready."""
    try:
        count = await view.ready_nodes(client)
    except ApiError as error:
        return Missing(f"nodes to be Ready ({error})", f"{KUBELET}-0")
    return Missing(f"nodes to be Ready: {count:,} of {expected:,}", f"{KUBELET}-0") if count < expected else None


async def leader(client: Client) -> Missing | None:
    """A scheduler leads."""
    return None if await view.try_leader(client) else Missing("a scheduler to lead", f"{SCHEDULER}-0")
