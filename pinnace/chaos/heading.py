"""What a history of chaos begins with: what its checkers must know of the load, the faults and the cluster."""

from pinnace.chaos.adversary import ANOTHER
from pinnace.chaos.faults.table import DOUBLING, HARMLESS, HOSTILE, OBSERVING, TOLERATED
from pinnace.chaos.load import BYSTANDER, FENCED, PRIVATE
from pinnace.check.history import Run
from pinnace.cluster.spec import ELECTION

BIND_WITHIN = 5.0
"""Seconds in which some waiting pod is bound. A leader is replaced in two or three, which `aftermath` covers."""
ANSWER_WITHIN = 1.0
"""Seconds for nine of ten calls of the bystander; without a flood they take some 10 ms."""


def heading(began: float, seed: int, what: str, settle: float, faults: tuple[str, ...] = ()) -> Run:
    """`began` is Unix time; within `settle` seconds all must be well again. `faults`: the kinds that must have fired."""
    return Run(
        began,
        seed,
        what,
        faults=faults,
        private=PRIVATE,
        fenced=FENCED,
        settle=settle,
        elections=(ELECTION,),
        unsteady=(ANOTHER,),
        harmless=HARMLESS,
        tolerated=TOLERATED,
        bind_within=BIND_WITHIN,
        bystanders=(BYSTANDER,),
        hostile=HOSTILE,
        answer_within=ANSWER_WITHIN,
        observing=OBSERVING,
        doubling=DOUBLING,
    )
