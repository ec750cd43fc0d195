"""What a cluster that starts still lacks. Each question answers None when nothing is missing any more."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.cluster import view
from pinnace.cluster.spec import KUBELET, SCHEDULER
from pinnace.cluster.state import ProcessRecord


@dataclass(frozen=True, slots=True)
class Missing:
    """`process` names the one whose log is most likely to say why."""

    what: str
    process: str


async def readiness(records: Sequence[ProcessRecord]) -> Missing | None:
    """Of these processes."""
    reasons = await asyncio.gather(*map(view.unready, records))
    unready = [(record.name, why) for record, why in zip(records, reasons, strict=True) if why]
    return Missing(", ".join(f"{name} ({why})" for name, why in unready), unready[0][0]) if unready else None


async def nodes(client: Client, expected: int) -> Missing | None:
    """That so many nodes are Ready."""
    try:
        count = await view.ready_nodes(client)
    except ApiError as error:
        return Missing(f"nodes to be Ready ({error})", f"{KUBELET}-0")
    return Missing(f"nodes to be Ready: {count:,} of {expected:,}", f"{KUBELET}-0") if count < expected else None


async def leader(client: Client) -> Missing | None:
    """That a scheduler leads."""
    return None if await view.try_leader(client) else Missing("a scheduler to lead", f"{SCHEDULER}-0")
