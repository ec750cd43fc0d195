"""How fast an autoscaler changes the replicas: bounds, stabilization windows and policies. Times are Unix time.

    proposal --window--> stabilized --min, max, policies--> replicas, with the conditions AbleToScale and ScalingLimited

The history of an autoscaler is in memory only, as in Kubernetes: a new leader begins with the present replicas.

Source: pkg/controller/podautoscaler/horizontal.go of Kubernetes 1.36.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from pinnace.api.autoscaling_v2_pb2 import HPAScalingRules
from pinnace.controllers.replicacalculator import MAX_REPLICAS

SCALE_UP_FACTOR, SCALE_UP_MINIMUM = 2, 4
"""The limit of one step up without a behavior: twice the replicas, or 4."""
DOWN_MESSAGE = "recent recommendations were higher than current one, applying the highest recent recommendation"
UP_MESSAGE = "recent recommendations were lower than current one, applying the lowest recent recommendation"
MATCHES = ("ReadyForNewScale", "recommended size matches current size")
WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
UP_LIMIT = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
DOWN_LIMIT = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")


class Recommendation(NamedTuple):
    replicas: int
    time: float


class ScaleEvent(NamedTuple):
    """A change of the replicas. `change` is positive in both directions."""

    change: int
    time: float


@dataclass(slots=True)
class ScalingHistory:
    """The recent recommendations and changes of one autoscaler."""

    recommendations: list[Recommendation] = field(default_factory=list)
    ups: list[ScaleEvent] = field(default_factory=list)
    downs: list[ScaleEvent] = field(default_factory=list)

    def record_change(self, before: int, after: int, rules: tuple[HPAScalingRules, HPAScalingRules], now: float) -> None:
        """Record a change. `rules`: up and down. Events older than all periods of their direction are dropped."""
        events, direction = (self.ups, rules[0]) if after > before else (self.downs, rules[1])
        longest = max((policy.periodSeconds for policy in direction.policies), default=0)
        events[:] = [event for event in events if event.time >= now - longest]
        events.append(ScaleEvent(abs(after - before), now))


class Bounds(NamedTuple):
    current: int
    least: int
    most: int


class Limited(NamedTuple):
    """Replicas within the limits. `able` and `limited`: reason and message of AbleToScale and of ScalingLimited."""

    replicas: int
    able: tuple[str, str]
    is_limited: bool
    limited: tuple[str, str]


def limit_by_default(history: ScalingHistory, proposal: int, bounds: Bounds, window: float, now: float) -> Limited:
    """Limit a proposal without a behavior. `window`: seconds of the stabilization of scaling down."""
    recent = [item for item in history.recommendations if item.time >= now - window]
    stable = max((proposal, *(item.replicas for item in recent)))
    history.recommendations[:] = [*recent, Recommendation(proposal, now)]
    able = MATCHES if stable == proposal else ("ScaleDownStabilized", DOWN_MESSAGE)
    step = max(SCALE_UP_FACTOR * bounds.current, SCALE_UP_MINIMUM)
    most, reason = (step, UP_LIMIT) if bounds.most > step else (bounds.most, TOO_MANY)
    if stable < bounds.least:
        return Limited(bounds.least, able, True, TOO_FEW)
    if stable > most:
        return Limited(most, able, True, reason)
    return Limited(stable, able, False, WITHIN)


def limit_by_behavior(
    history: ScalingHistory,
    proposal: int,
    bounds: Bounds,
    up: HPAScalingRules,
    down: HPAScalingRules,
    default_window: float,
    now: float,
) -> Limited:
    """Limit a proposal by the rules of a behavior. `default_window`: seconds of the stabilization of scaling down, if the rules
    have none."""
    current = bounds.current
    down_window = down.stabilizationWindowSeconds if down.HasField("stabilizationWindowSeconds") else default_window
    up_window = up.stabilizationWindowSeconds
    recent = history.recommendations
    lowest = min((proposal, *(item.replicas for item in recent if item.time > now - up_window)))
    highest = max((proposal, *(item.replicas for item in recent if item.time > now - down_window)))
    stable = min(max(current, lowest), highest)
    horizon = now - max(up_window, down_window)
    recent[:] = [*(item for item in recent if item.time >= horizon), Recommendation(proposal, now)]
    able = MATCHES
    if stable != proposal:
        able = ("ScaleUpStabilized", UP_MESSAGE) if proposal >= current else ("ScaleDownStabilized", DOWN_MESSAGE)
    if stable > current:
        limit = max(scale_up_limit(current, history, up, now), current)
        most, reason = (limit, UP_LIMIT) if bounds.most > limit else (bounds.most, TOO_MANY)
        if stable > most:
            return Limited(most, able, True, reason)
    elif stable < current:
        limit = min(scale_down_limit(current, history, down, now), current)
        least, reason = (limit, DOWN_LIMIT) if bounds.least < limit else (bounds.least, TOO_FEW)
        if stable < least:
            return Limited(least, able, True, reason)
    return Limited(stable, able, False, WITHIN)


def scale_up_limit(current: int, history: ScalingHistory, rules: HPAScalingRules, now: float) -> int:
    """Return the most replicas that the policies allow now."""
    if rules.selectPolicy == "Disabled":
        return current
    proposals = []
    for policy in rules.policies:
        start = _replicas_before(current, history, policy.periodSeconds, now)
        if policy.type == "Pods":
            proposals.append(start + policy.value)
        else:
            proposals.append(math.ceil(start * (1 + policy.value / 100)))
    if rules.selectPolicy == "Min":
        return min(proposals, default=MAX_REPLICAS)
    return max(proposals, default=0)


def scale_down_limit(current: int, history: ScalingHistory, rules: HPAScalingRules, now: float) -> int:
    """Return the fewest replicas that the policies allow now."""
    if rules.selectPolicy == "Disabled":
        return current
    proposals = []
    for policy in rules.policies:
        start = _replicas_before(current, history, policy.periodSeconds, now)
        if policy.type == "Pods":
            proposals.append(start - policy.value)
        else:
            proposals.append(int(start * (1 - policy.value / 100)))
    if rules.selectPolicy == "Min":
        return max(proposals, default=0)
    return min(proposals, default=MAX_REPLICAS)


def _replicas_before(current: int, history: ScalingHistory, period: int, now: float) -> int:
    """Return the replicas at the beginning of the period."""
    added = sum(event.change for event in history.ups if event.time > now - period)
    removed = sum(event.change for event in history.downs if event.time > now - period)
    return current - added + removed
