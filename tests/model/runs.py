"""What is checked: bounds under which nothing may be wrong, and for each guard those under which its absence shows."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from tests.model.checker import Model, Step
from tests.model.election import Election
from tests.model.lease import TEXTS, LeaseModel, Rule
from tests.model.rules import ACTIONS, Fault, Guard


class Run(NamedTuple):
    """`make` takes the guards that are taken away. `recovery`: is there anything to recover to?"""

    title: str
    make: Callable[[Collection[Any]], Model[Any]]
    recovery: bool = True


def election(title: str, **bounds: Any) -> Run:
    return Run(title, lambda broken: Election(broken=broken, **bounds))


LEASE = Run("lease and clocks: TTL and validity of 5 ticks", lambda broken: LeaseModel(5, 5, broken=broken), recovery=False)
PAIR = election("two candidates, two servers, any fault", faults=1)
ALONE = election("one candidate, two servers, any two faults", candidates=1, faults=2)
ROLLED = election("a server is killed or rolled: no leader loses its key", faults=1, kinds={Fault.RESTART}, steady=True)
ROLLED_TWICE = election(
    "one candidate, servers killed or rolled twice: it keeps its key",
    candidates=1,
    faults=2,
    kinds={Fault.RESTART},
    steady=True,
)
SMALL = (LEASE, PAIR, ALONE, ROLLED, ROLLED_TWICE)

LARGE = (
    election("two candidates, servers killed or rolled twice", faults=2, kinds={Fault.RESTART}, steady=True),
    election("two candidates, one server, any two faults", servers=1, faults=2),
    election("two candidates, killed twice", faults=2, kinds={Fault.CRASH}),
    election("two candidates, servers and candidates killed", faults=2, kinds={Fault.CRASH, Fault.RESTART}),
    election("two candidates, two delays", faults=2, kinds={Fault.SLOW}),
    election("two candidates, delays and answers of etcd lost", faults=2, kinds={Fault.SLOW, Fault.LOST}),
    election("two candidates, servers killed and answers of etcd lost", faults=2, kinds={Fault.RESTART, Fault.LOST}),
    election("one candidate, any three faults", candidates=1, faults=3),
)
"""Many minutes, and a few GB; the last one may be beyond the limit, which the exit code says."""

TWO_LEADERS = election("two candidates believe to lead", faults=1, one_leader=True)
"""Not an invariant: the counterexample shows how it comes about, and why it does no harm."""

_CROSSED = election("a transfer, and a delay", servers=1, faults=2, kinds={Fault.SLOW, Fault.TRANSFER})
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
"""By name: where it shows that these are missing."""

SPARE = (Guard.NOTICE, Guard.BEATEN)
"""Each stands in for the other: one of them may be missing."""


def describe(step: Step[Any]) -> str:
    """A step of a trace, in words."""
    action, *subjects = step.action
    return ACTIONS[action].text.format(*subjects) if action in ACTIONS else TEXTS[action]
