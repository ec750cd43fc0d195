"""What a history of chaos begins with: what its checkers must know of the load, the faults and the cluster."""

from pinnace.chaos.faults.table import DOUBLING, HARMLESS
from pinnace.chaos.load import FENCED, PRIVATE
from pinnace.check.history import Run
from pinnace.cluster.spec import ELECTION


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
        harmless=HARMLESS,
        doubling=DOUBLING,
    )
