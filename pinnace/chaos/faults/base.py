"""What a fault is, and what a schedule must know of its kind."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pinnace.chaos.world import World
from pinnace.cluster.spec import ClusterSpec


class Area(StrEnum):
    """What a fault impairs. At most one fault is on in an area, so that whatever there is three of keeps its majority."""

    SCHEDULERS = "schedulers"
    APISERVERS = "apiservers"
    KUBELETS = "kubelets"
    ETCD = "etcd"
    NONE = ""
    """Nothing that others depend on; never in the way of another fault."""
    ALL = "all"
    """Everything: nothing else is on meanwhile."""


class Fault(Protocol):
    """One time that something is done to one target. `end` undoes it; it may be called at any time after `begin` was, more than
    once, and when `begin` has failed or was cancelled; then it may begin again. `details`: what was chosen by chance."""

    details: str

    async def begin(self) -> None:
        """Raises NotPossible."""
        ...

    async def end(self) -> None: ...


Targets = Callable[[ClusterSpec], Sequence[str]]
Make = Callable[[World, str, random.Random], Fault]


@dataclass(frozen=True, slots=True)
class Kind:
    """`what`: in a few words. `seconds`: the shortest and the longest time for which it is on. `weight`: how often it happens,
    compared with others."""

    name: str
    what: str
    area: Area
    targets: Targets
    make: Make
    seconds: tuple[float, float]
    weight: int = 2


def roles(*names: str) -> Targets:
    """Processes by what they are at that moment, or things that are there once."""
    return lambda spec: names


def named(component: str, count: Callable[[ClusterSpec], int]) -> Targets:
    return lambda spec: [f"{component}-{number}" for number in range(count(spec))]


apiservers = named("apiserver", lambda spec: spec.apiservers)
kubelets = named("kubelet", lambda spec: spec.kubelets)
