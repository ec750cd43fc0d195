"""Preemption without a scheduler around it."""

from collections.abc import Sequence
from typing import Any

from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.resources import Resource
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PlacedPod, PodInfo
from pinnace.scheduler.framework import Diagnosis, Nominated, Status
from pinnace.scheduler.framework.profile import Offline
from pinnace.scheduler.framework.results import Proposed
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.plugins.default_preemption import DefaultPreemption
from tests.builders import PodBuilder, label_selector
from tests.unit.scheduler.pods import framework, info


def budget(name: str, labels: str, allowed: int, *disrupted: str) -> PodDisruptionBudget:
    """Of the pods in "default" with these labels; `disrupted`: pods whose disruption was granted."""
    made = PodDisruptionBudget()
    made.metadata.name, made.metadata.namespace, made.metadata.uid = name, "default", name
    made.spec.selector.CopyFrom(label_selector(labels))
    made.status.disruptionsAllowed = allowed
    for pod in disrupted:
        made.status.disruptedPods[pod].seconds = 1
    return made


def settled(answer: Nominated | Proposed | Status | None) -> Nominated | Status | None:
    """Nobody objects."""
    return answer.settle(answer.candidates) if isinstance(answer, Proposed) else answer


class Bench(Offline):
    """A handle with which DefaultPreemption works, and which remembers who was evicted."""

    def __init__(self, cache: Cache, *budgets: PodDisruptionBudget, seed: int = 0, profile: Framework | None = None) -> None:
        super().__init__()
        self.preemption = self
        self.cache = cache
        self.budgets = {item.metadata.name: item for item in budgets}
        self.seed = seed
        self.evicted: list[str] = []
        self.leaving: set[str] = set()
        self.framework = profile or framework()

    def objects(self, resource: Resource[Any]) -> dict[str, Any]:
        return dict(self.budgets)

    def filters(self, pod: PodInfo) -> Framework:
        return self.framework

    def evict(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        self.evicted += [victim.key.removeprefix("default/") for victim in victims]

    def is_leaving(self, pod: PlacedPod) -> bool:
        return pod.uid in self.leaving

    def diagnose(self, pod: PodInfo) -> Diagnosis:
        diagnosis = self.framework.run_filters({}, pod, self.cache.nodes.subtract_reserved(pod.priority, pod.uid))
        assert not diagnosis.feasible.any()
        return diagnosis

    def preempt(self, pod: PodBuilder, **args: int) -> Nominated | Status | None:
        wanted = info(pod)
        return settled(self.plugin(**args).post_filter({}, wanted, self.cache.nodes, self.diagnose(wanted)))

    def plugin(self, **args: int) -> DefaultPreemption:
        return DefaultPreemption(args, self)
