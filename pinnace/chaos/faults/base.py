"""Faults, and what a schedule must know about their kinds."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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


class Need(StrEnum):
    """What a kind of fault cannot do without. The text is the reason for which it is left out."""

    MEMBERS = "etcd has one member"
    FAKETIME = "libfaketime is not installed"
    DISK = "no tmpfs can be mounted (not root)"
    DEV_FULL = "there is no /dev/full"
    LIMITS = "limits of other processes cannot be set (no prlimit)"


@dataclass(frozen=True, slots=True)
class Reading:
    """A figure that a fault read from its target, and the bounds for it; see history.Observed."""

    at: float
    target: str
    what: str
    value: float
    least: float | None = None
    most: float | None = None


class Fault(Protocol):
    """One time that something is done to one target. `end` undoes it; it may be called at any time after `begin` was, more than
    once, and when `begin` has failed or was cancelled; then it may begin again. `details`: what was chosen by chance."""

    details: str

    async def begin(self) -> None:
        """Raises NotPossible."""
        ...

    async def end(self) -> None: ...


class Measuring:
    """The base of faults that read figures from their targets. `readings` are complete when `end` has returned."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []

    def read(self, target: str, what: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
        self.readings.append(Reading(time.monotonic(), target, what, value, least, most))


Targets = Callable[[ClusterSpec], Sequence[str]]
Make = Callable[[World, str, random.Random], Fault]


@dataclass(frozen=True, slots=True)
class Kind:
    """`what`: in a few words. `seconds`: the shortest and the longest time for which it is on. `weight`: how often it happens,
    compared with others. `needs`: what the machine or the cluster must have for it."""

    name: str
    what: str
    area: Area
    targets: Targets
    make: Make
    seconds: tuple[float, float]
    weight: int = 2
    needs: tuple[Need, ...] = ()

    def on(self, spec: ClusterSpec) -> "Kind":
        """The kind for a cluster of this size: what hits the only member of etcd hits everything."""
        return replace(self, area=Area.ALL) if self.area is Area.ETCD and spec.etcd_members == 1 else self


def roles(*names: str) -> Targets:
    """Processes by what they are at that moment, or things that are there once."""
    return lambda spec: names


def named(component: str, count: Callable[[ClusterSpec], int]) -> Targets:
    return lambda spec: [f"{component}-{number}" for number in range(count(spec))]


apiservers = named("apiserver", lambda spec: spec.apiservers)
kubelets = named("kubelet", lambda spec: spec.kubelets)
