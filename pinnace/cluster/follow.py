"""What changes in a cluster while one looks on: a line for each change."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from pinnace.cluster import view
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import FolderError, NoCluster
from pinnace.cluster.spec import ELECTIONS
from pinnace.cluster.view import ProcessStatus

INTERVAL = 0.5


async def follow(cluster: Cluster, before: Sequence[ProcessStatus], say: Callable[[str], None]) -> None:
    """Says what changes after `before`. Returns when nothing is left to look at: its state, or its certificates,
    are gone (another cluster in its folder is none of ours), or all its processes have ended."""
    with suppress(NoCluster, FolderError):
        async with cluster.client() as client:
            while True:
                after = await view.status(cluster.reloaded().state, client)
                for line in changes(before, after):
                    say(line)
                if not any(process.pid for process in after):
                    return
                before = after
                await asyncio.sleep(INTERVAL)


def changes(before: Sequence[ProcessStatus], after: Sequence[ProcessStatus]) -> list[str]:
    """The lines that tell what is different."""
    known = {process.name: process for process in before}
    lines = [line for new in after if (line := _change(known[new.name], new))]
    return lines + [line for component in ELECTIONS for line in _leaders(_of(component, before), _of(component, after))]


def _change(old: ProcessStatus, new: ProcessStatus) -> str | None:
    if old.pid and not new.pid:
        return f"{new.name} has ended (was pid {old.pid})"
    if new.pid != old.pid:
        return f"{new.name} has been started (pid {new.pid})"
    if not new.pid:
        return None
    if old.ready and not new.ready:
        return f"{new.name} is not ready: {new.problem}"
    return f"{new.name} is ready" if new.ready and not old.ready else None


def _of(component: str, processes: Sequence[ProcessStatus]) -> Sequence[ProcessStatus]:
    return [process for process in processes if process.component == component]


def _leaders(before: Sequence[ProcessStatus], after: Sequence[ProcessStatus]) -> list[str]:
    old, new = _leader(before), _leader(after)
    if new == old:
        return []
    return [f"{new} leads{f', {old} did before' if old else ''}"] if new else [f"nobody leads, {old} did before"]


def _leader(processes: Sequence[ProcessStatus]) -> str:
    return next((process.name for process in processes if process.leader), "")
