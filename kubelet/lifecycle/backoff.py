"""Which containers come back, and after how long: crash loops slow down.

    first restart at once, then 10 s, 20 s, 40 s, ... up to 5 minutes; an attempt that ran for 10 minutes begins anew

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy
"""

from kubelet.lifecycle.plan import ContainerPlan
from kubelet.lifecycle.state import Care
from kubelet.runtime import ContainerView, Exit

BACKOFF = 10.0
"""Seconds before the second restart; each later one waits twice as long."""
BACKOFF_MAX = 300.0
BACKOFF_RESET = 600.0
"""A container that ran this long has earned an immediate restart, and then 10 s again."""


def comes_back(plan: ContainerPlan, view: ContainerView, care: Care | None) -> bool:
    """Is a container that has ended so started again? One that was stopped because a hook or a probe had failed is, whatever
    its code, unless nothing is; one that was stopped because it is to have another image always is. What failed of an earlier
    attempt does not matter: of one that ended before anybody saw it run there is no care yet, but the earlier one's."""
    assert view.exit is not None
    if plan.restart_policy == "Always":
        return True
    doom = care.doom if care is not None and care.attempt == view.attempt else None
    if doom is not None and doom.anyway:
        return True
    return plan.restart_policy == "OnFailure" and (view.exit.code != 0 or doom is not None)


def ran_long(exit_: Exit) -> bool:
    return exit_.finished.monotonic - exit_.started.monotonic >= BACKOFF_RESET


def delay(view: ContainerView, care: Care | None) -> float:
    """Seconds from the exit of an attempt to the next."""
    assert view.exit is not None
    crashes = view.attempt - (care.first_crash if care is not None else 0)
    if crashes <= 0 or ran_long(view.exit):
        return 0.0
    return min(BACKOFF * 2.0 ** min(crashes - 1, 32), BACKOFF_MAX)


def in_words(seconds: float) -> str:
    """As Go writes a duration: 40s, 1m20s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
