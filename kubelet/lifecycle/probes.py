"""The prober: decides when a container is probed, and what the outcomes come to. Pure; it begins no call itself.

    initial delay --> call --ended--> counted --(as many in a row as the threshold says)--> verdict
                       ^                 |
                       +---- period -----+     from the begin of one call to the begin of the next

A call that is still out is waited for, however late: calls of one probe do not overlap, and each is counted once.
Source: https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/
"""

from typing import NamedTuple

from kubelet.lifecycle.plan import ProbePlan
from kubelet.lifecycle.state import ProbeMemory
from kubelet.runtime import Call, CallKind, CallView, ContainerView, Instant


class Probed(NamedTuple):
    memory: ProbeMemory
    verdict: bool | None
    """None: below the thresholds, so what was the case before stays so."""
    call: Call | None
    """To be begun now."""
    wake_at: float | None
    failure: str
    """Of the call that was counted in this step, when it is the first in a row to fail."""


def call_of(view: ContainerView, kind: CallKind) -> CallView | None:
    """The latest call of this kind."""
    for call in view.calls:
        if call.kind is kind:
            return call
    return None


def probe(plan: ProbePlan, memory: ProbeMemory, view: ContainerView, since: float, now: Instant) -> Probed:
    """One step of a probe. `since`: monotonic time from which its initial delay counts."""
    verdict, failure = None, ""
    latest = call_of(view, plan.kind)
    if latest is not None and latest.number == memory.counted:
        if latest.ended is None:
            return Probed(memory, None, None, latest.changes_at, "")
        memory = _count(memory, latest)
        if memory.run >= plan.successes:
            verdict = True
        elif -memory.run >= plan.failures:
            verdict = False
        failure = latest.failure if memory.run == -1 else ""
    due = since + plan.initial_delay if memory.begun is None else memory.begun + plan.period
    if now.monotonic < due:
        return Probed(memory, verdict, None, due, failure)
    return Probed(memory, verdict, Call(plan.kind, memory.counted, plan.handler, plan.timeout), None, failure)


def _count(memory: ProbeMemory, call: CallView) -> ProbeMemory:
    run = min(memory.run, 0) - 1 if call.failure else max(memory.run, 0) + 1
    return ProbeMemory(call.number + 1, call.begun.monotonic, run)
