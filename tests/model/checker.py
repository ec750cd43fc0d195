"""A small explicit-state model checker: breadth first, so that a counterexample is a shortest one.

A model gives the initial states, the steps from a state, and what is wrong with a state (an invariant that it breaks). States
are compared after `canonical`, which maps states that differ in names only to one of them.

Two kinds of properties:
* safety: no reachable state is wrong;
* recovery: from every reachable state a good one can be reached by steps that are not faults. It is weaker than liveness (the
  good state *can* be reached, nothing says that it will), and finds what liveness is mostly lost to: states without a way out.
"""

import gc
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple, Generic[S]):
    """`action` names it, with its subjects, for a trace. `fault`: no recovery may count on it."""

    action: tuple[str, ...]
    state: S
    fault: bool = False


class Model(Protocol[S]):
    def initial(self) -> Iterable[S]: ...

    def steps(self, state: S) -> Iterable[Step[S]]:
        """All that can happen next."""
        ...

    def ample(self, state: S) -> Iterable[Step[S]]:
        """As many of the steps as are enough: what the others lead to is found later, all the same."""
        ...

    def canonical(self, state: S) -> S:
        """Of states that behave alike, always the same one."""
        ...

    def wrong(self, state: S) -> str | None:
        """The invariant that does not hold, in words; None: all hold."""
        ...

    def good(self, state: S) -> bool:
        """What the system recovers to."""
        ...


@dataclass(frozen=True, slots=True)
class Counterexample(Generic[S]):
    """`trace` leads from an initial state, whose action is (), to the last one. Its names and numbers stay what they are."""

    problem: str
    trace: list[Step[S]]

    def __len__(self) -> int:
        """Steps."""
        return len(self.trace) - 1


@dataclass(frozen=True, slots=True)
class Result(Generic[S]):
    """`counterexample` None: nothing is wrong with any of the states, and all of them were seen."""

    states: int
    transitions: int
    depth: int
    counterexample: Counterexample[S] | None


class TooManyStates(Exception):
    """There are more than were allowed for: nothing was proven."""


def check(model: Model[S], *, recovery: bool = True, limit: int = 1_000_000) -> Result[S]:
    """Explores all states. Raises TooManyStates."""
    gc.disable()  # states are tuples by the million, none in a cycle: to look for those takes a quarter of the time
    try:
        return _Exploration(model, limit).run(recovery)
    finally:
        gc.enable()


class _Exploration(Generic[S]):
    def __init__(self, model: Model[S], limit: int) -> None:
        self._model = model
        self._limit = limit
        self._ids: dict[S, int] = {}
        self._origins: list[tuple[int, Step[S]]] = []  # each state, with how and from which it was reached first
        self._before: list[list[int]] = []  # from which states it is reached by steps that are not faults
        self._transitions = 0

    def run(self, recovery: bool) -> Result[S]:
        depth = 0
        frontier = list(self._begin())
        while frontier:
            found: list[int] = []
            for number in frontier:
                state = self._origins[number][1].state
                if (problem := self._model.wrong(state)) is not None:
                    return self._result(depth, Counterexample(problem, self._trace(number)))
                found.extend(self._expand(number, state, recovery))
            frontier = found
            depth += bool(found)
        stuck = self._stuck() if recovery else None
        return self._result(depth, Counterexample("there is no way out", self._trace(stuck)) if stuck is not None else None)

    def _begin(self) -> Iterator[int]:
        for state in self._model.initial():
            step = Step((), self._model.canonical(state))
            if step.state not in self._ids:
                yield self._add(-1, step)

    def _expand(self, number: int, state: S, recovery: bool) -> Iterator[int]:
        ids, before, canonical = self._ids, self._before, self._model.canonical
        for action, following, fault in self._model.ample(state):
            self._transitions += 1
            following = canonical(following)
            known = ids.get(following)
            if known is None:
                known = self._add(number, Step(action, following, fault))
                yield known
            if recovery and not fault:
                before[known].append(number)

    def _add(self, origin: int, step: Step[S]) -> int:
        number = len(self._origins)
        if number >= self._limit:
            raise TooManyStates(f"more than {self._limit} states")
        self._ids[step.state] = number
        self._origins.append((origin, step))
        self._before.append([])
        return number

    def _stuck(self) -> int | None:
        """The first state from which no good one can be reached."""
        good = [number for number, (_, step) in enumerate(self._origins) if self._model.good(step.state)]
        recovers = set(good)
        while good:
            for number in self._before[good.pop()]:
                if number not in recovers:
                    recovers.add(number)
                    good.append(number)
        return next((number for number in range(len(self._origins)) if number not in recovers), None)

    def _trace(self, number: int) -> list[Step[S]]:
        """Goes the way again, without renaming anything on it."""
        path: list[S] = []
        while number >= 0:
            number, (_, state, _) = self._origins[number]
            path.append(state)
        wanted = path.pop()
        first = next(state for state in self._model.initial() if self._model.canonical(state) == wanted)
        steps = [Step((), first)]
        while path:
            wanted = path.pop()
            following = self._model.steps(steps[-1].state)
            steps.append(next(step for step in following if self._model.canonical(step.state) == wanted))
        return steps

    def _result(self, depth: int, counterexample: Counterexample[S] | None) -> Result[S]:
        return Result(len(self._origins), self._transitions, depth, counterexample)
