"""The list of mutations: what is done to honest histories to see whether anybody notices."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from pinnace.history.records import Record

Records = list[Record]
Mutate = Callable[[Records, random.Random], Records]
"""Makes other records of these, and leaves the list as it is. StopIteration, IndexError or ValueError: no place here."""


@dataclass(frozen=True, slots=True)
class Mutation:
    breaks: str
    """The invariant that must be found violated."""
    mutate: Mutate
    also: frozenset[str]
    """Others that this cannot but violate."""

    @property
    def name(self) -> str:
        return f"{self.breaks}-{self.mutate.__name__}"


MUTATIONS: list[Mutation] = []


def breaks(invariant: str, *also: str) -> Callable[[Mutate], Mutate]:
    def add(mutate: Mutate) -> Mutate:
        MUTATIONS.append(Mutation(invariant, mutate, frozenset(also)))
        return mutate

    return add
