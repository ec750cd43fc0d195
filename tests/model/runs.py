"""The runs of the checker: runs without violations, and for each guard a run in which its removal has a counterexample."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from tests.model.checker import Model, Step
from tests.model.election import Election
from tests.model.lease import TEXTS, LeaseModel, Rule
from tests.model.rules import ACTIONS, Fault, Guard


class Run(NamedTuple):
    """`make` takes the removed guards. `recovery` states whether to check recovery."""

    title: str
    make: Callable[[Collection[Any]], Model[Any]]
    recovery: bool = True


def election(title: str, **bounds: Any) -> Run:
    return Run(title, lambda broken: Election(broken=broken, **bounds))


LEASE = Run("lease and clocks: TTL and validity of 5 ticks", lambda broken: LeaseModel(5, 5, broken=broken), recovery=False)
PAIR = election("two candidates, two servers, any fault", faults=1)
ALONE = election("one candidate, two servers, any two faults", candidates=1, faults=2)
ROLLED = election("one server restart: no leader loses its key", faults=1, kinds={Fault.RESTART}, steady=True)
ROLLED_TWICE = election(
    "one candidate, two server restarts: it keeps its key",
    candidates=1,
    faults=2,
    kinds={Fault.RESTART},
    steady=True,
)
SMALL = (LEASE, PAIR, ALONE, ROLLED, ROLLED_TWICE)

LARGE = (
    election("two candidates, two server restarts", faults=2, kinds={Fault.RESTART}, steady=True),
    election("two candidates, one server, any two faults", servers=1, faults=2),
    election("two candidates, two crashes of candidates", faults=2, kinds={Fault.CRASH}),
    election("two candidates, crashes of servers and candidates", faults=2, kinds={Fault.CRASH, Fault.RESTART}),
    election("two candidates, two delays", faults=2, kinds={Fault.SLOW}),
    election("two candidates, delays and lost responses of etcd", faults=2, kinds={Fault.SLOW, Fault.LOST}),
    election("two candidates, server restarts and lost responses of etcd", faults=2, kinds={Fault.RESTART, Fault.LOST}),
    election("one candidate, any three faults", candidates=1, faults=3),
)
"""Runs of many minutes and a few GB. The last one may exceed the limit of states, which the exit code reports."""

TWO_LEADERS = election("two candidates believe to lead", faults=1, one_leader=True)
"""Not an invariant. The counterexample shows how terms overlap and why this is harmless."""

_CROSSED = election("a transfer and a delay", servers=1, faults=2, kinds={Fault.SLOW, Fault.TRANSFER})
_KILLED = election("a candidate is killed", faults=1, kinds={Fault.CRASH})

BREAKS: dict[str, tuple[Run, tuple[Guard | Rule, ...]]] = {
    **{
        guard.breaking: (run, (guard,))
        for guard, run in (
            (Guard.TOKEN_COMPARE, PAIR),
            (Guard.BARRIER, PAIR),
            (Guard.DEPOSE_COMPARE, PAIR),
            (Guard.TAKE_OVER, PAIR),
            (Guard.RESUME_TOKEN, PAIR),
            (Guard.FINAL_LAPSE, ALONE),
            (Guard.ADOPTION, PAIR),
            (Guard.ASSUME, PAIR),
            (Guard.LEASE_ORDER, ROLLED),
            (Guard.POLITE_DRAIN, PAIR),
            (Guard.NO_REVOCATION, ALONE),
            (Guard.TRANSFER_TOKEN, _CROSSED),
        )
    },
    **{rule.breaking: (LEASE, (rule,)) for rule in Rule},
    "validity-above-ttl": (Run("validity of 6 ticks, TTL of 5", lambda broken: LeaseModel(5, 6), recovery=False), ()),
    "no-notice,server-renews": (_KILLED, (Guard.NOTICE, Guard.BEATEN)),
}
"""By name: the run and the guards to remove for a counterexample."""

SPARE = (Guard.NOTICE, Guard.BEATEN)
"""Redundant guards: either of them can be missing."""


def describe(step: Step[Any]) -> str:
    """Describe a step of a trace."""
    action, *subjects = step.action
    return ACTIONS[action].text.format(*subjects) if action in ACTIONS else TEXTS[action]
