"""Faults, and the properties of their kinds that a schedule needs."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from pinnace.cluster.spec import ClusterSpec
from pinnace.verification.chaos.cluster_under_test import ClusterUnderTest

Targets = Callable[[ClusterSpec], Sequence[str]]


class FaultArea(StrEnum):
    """The part of the cluster that a fault impairs. At most one fault per area is active, so that components with three
    replicas keep a majority."""

    SCHEDULERS = "schedulers"
    APISERVERS = "apiservers"
    KUBELETS = "kubelets"
    GATEWAYS = "gateways"
    PROXY = "proxy"
    ETCD = "etcd"
    NONE = ""
    """No other component is affected. The fault can overlap with any other fault."""
    ALL = "all"
    """The whole cluster. No other fault is active at the same time."""


class FaultRequirement(StrEnum):
    """The requirement of a kind of fault. The value is the reason for skipping it."""

    MEMBERS = "etcd has one member"
    FAKETIME = "libfaketime is not installed"
    DISK = "mounting a tmpfs requires root"
    DEV_FULL = "/dev/full does not exist"
    LIMITS = "prlimit is not available"
    GATEWAYS = "the cluster has no gateway"
    PROXY = "the cluster has no service proxy (--proxy)"


@dataclass(frozen=True, slots=True)
class FaultReading:
    """A value that a fault read from its target, with its limits; see records.Observed."""

    at: float
    target: str
    what: str
    value: float
    least: float | None = None
    most: float | None = None


class InjectedFault(Protocol):
    """A fault on one target. `undo` undoes it. It can be called at any time after `inject`, repeatedly, and after `begin`
    failed or was cancelled. Afterwards the fault can begin again. `details`: the random choices."""

    details: str

    async def inject(self) -> None:
        """Inject the fault. Raises NotPossible."""
        ...

    async def undo(self) -> None: ...


class ProcessFault:
    """The base class of faults of one process. `_name`: the process, after `inject`; empty before."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        super().__init__()
        self._under_test = under_test
        self._target = target
        self._name = ""
        self.details = ""


class MeasuringFault:
    """The base class of faults that read values from their targets. `readings` is complete after `undo`."""

    def __init__(self) -> None:
        self.readings: list[FaultReading] = []

    def read(self, target: str, what: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
        self.readings.append(FaultReading(time.monotonic(), target, what, value, least, most))


MakeFault = Callable[[ClusterUnderTest, str, random.Random], InjectedFault]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault. `what`: a short description. `seconds`: the minimum and maximum duration. `weight`: the relative
    frequency. `needs`: requirements of the machine and the cluster."""

    name: str
    what: str
    area: FaultArea
    targets: Targets
    make: MakeFault
    seconds: tuple[float, float]
    weight: int = 2
    needs: tuple[FaultRequirement, ...] = ()

    def for_cluster(self, spec: ClusterSpec) -> "FaultKind":
        """Return the kind for a cluster of this size. A fault of the only etcd member affects the whole cluster."""
        return replace(self, area=FaultArea.ALL) if self.area is FaultArea.ETCD and spec.etcd_members == 1 else self


def role_targets(*names: str) -> Targets:
    """Return targets that are roles, which are resolved when the fault starts, or unique names."""
    return lambda spec: names


def name_targets(component: str, count: Callable[[ClusterSpec], int]) -> Targets:
    return lambda spec: [f"{component}-{number}" for number in range(count(spec))]


apiservers = name_targets("apiserver", lambda spec: spec.apiservers)
gateways = name_targets("gateway", lambda spec: spec.gateways)
kubelets = name_targets("kubelet", lambda spec: spec.kubelets)
proxies = name_targets("proxy", lambda spec: int(spec.proxy))
