"""Stages as values: which pods they are about, and what happens to these.

Chance is seeded with the pod's uid: a kubelet that is started again finds that a pod does what it did before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random

from kubelet.behaviour import Behaviour
from pinnace.api.core_v1_pb2 import Pod


class What(StrEnum):
    """What a container does next. The delay counts from its being created for `start`, from being asked to for `stop`, and from
    running for the others."""

    START = "start"
    EXIT = "exit"
    STARTED = "started"
    READY = "ready"
    UNREADY = "unready"
    UNHEALTHY = "unhealthy"
    STOP = "stop"


_SECONDS = {
    What.START: "start_seconds",
    What.EXIT: "run_seconds",
    What.STARTED: "started_after_seconds",
    What.READY: "ready_after_seconds",
    What.UNREADY: "unready_after_seconds",
    What.UNHEALTHY: "unhealthy_after_seconds",
    What.STOP: "stop_seconds",
}
"""The field of Behaviour that the delay becomes."""


@dataclass(frozen=True, slots=True)
class Expression:
    """`read`: the values that a pod has of it."""

    read: Callable[[Pod], Sequence[str]]
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, pod: Pod) -> bool:
        found = self.read(pod)
        match self.operator:
            case "Exists":
                return bool(found)
            case "DoesNotExist":
                return not found
            case "In":
                return not self.values.isdisjoint(found)
            case _:
                return self.values.isdisjoint(found)


@dataclass(frozen=True, slots=True)
class Selector:
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    expressions: Sequence[Expression] = ()

    def matches(self, pod: Pod) -> bool:
        metadata = pod.metadata
        return (
            all(metadata.labels.get(key) == value for key, value in self.labels.items())
            and all(metadata.annotations.get(key) == value for key, value in self.annotations.items())
            and all(expression.holds(pod) for expression in self.expressions)
        )


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    what: What
    selector: Selector = field(default_factory=Selector)
    weight: int = 0
    delay: tuple[float, float] = (0.0, 0.0)
    """The least and the most, in seconds."""
    code: int = 0
    """The exit code, of an exit."""
    never: bool = False
    """It does not happen: what a stage can be weighed against."""


@dataclass(frozen=True, slots=True)
class Stages:
    stages: Sequence[Stage]

    def behaviour(self, pod: Pod, default: Behaviour) -> Behaviour:
        """Of the containers of this pod; the default itself where no stage is about it."""
        matching = [stage for stage in self.stages if stage.selector.matches(pod)]
        if not matching:
            return default
        chance = Random(pod.metadata.uid)
        fields: dict[str, float | int] = {}
        for what in What:
            if candidates := [stage for stage in matching if stage.what is what]:
                chosen = _choose(candidates, chance)
                seconds = chance.uniform(*chosen.delay)
                if not chosen.never:
                    fields[_SECONDS[what]] = seconds
                    if what is What.EXIT:
                        fields["exit_code"] = chosen.code
        return replace(default, **fields)  # type: ignore[arg-type]  # each has the type of its field


def _choose(candidates: Sequence[Stage], chance: Random) -> Stage:
    """By weight; where none has a weight all are alike."""
    weights = [stage.weight for stage in candidates]
    return chance.choices(candidates, weights if any(weights) else None)[0]
