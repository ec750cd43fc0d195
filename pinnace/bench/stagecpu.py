"""What the API servers spend on each stage while something is measured, if they count it (`--profile-stages`)."""

from collections import Counter
from collections.abc import Mapping
from typing import Self

from pinnace.bench import metrics
from pinnace.cluster.spec import APISERVER
from pinnace.cluster.state import ClusterState

NAME = "pinnace_stage_cpu_seconds_total"


class StageMeter:
    """`start`, then `read`: both raise BenchError."""

    def __init__(self, addresses: list[str], before: Mapping[str, float]) -> None:
        self._addresses = addresses
        self._before = before

    @classmethod
    async def start(cls, state: ClusterState) -> Self:
        addresses = [record.plan.http for record in state.of(APISERVER)]
        return cls(addresses, await _sum(addresses))

    async def read(self) -> dict[str, float]:
        """CPU seconds by stage since the start, of all API servers together; {} when they do not count."""
        return {stage: seconds - self._before[stage] for stage, seconds in (await _sum(self._addresses)).items()}


async def _sum(addresses: list[str]) -> Mapping[str, float]:
    total = Counter[str]()
    for address in addresses:
        total.update(await metrics.read_by(address, NAME, "stage"))
    return total
