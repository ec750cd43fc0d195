"""A small explicit-state model checker. It searches breadth first, so counterexamples are as short as possible.

A model defines the initial states, the steps from a state, and the invariant that a state violates. The checker compares states
after `canonical`, which maps states that only differ in names to one of them.

It checks two properties:
* Safety: no reachable state is wrong.
* Recovery: from every reachable state, steps without faults can reach a good state. This is weaker than liveness, because the
  good state need not be reached. It finds the most common violations of liveness: states without recovery.
"""

import gc
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple, Generic[S]):
    """`action` is the name of the step and its subjects, for traces. Recovery does not use steps with `fault`."""

    action: tuple[str, ...]
    state: S
    fault: bool = False


class Model(Protocol[S]):
    def initial(self) -> Iterable[S]: ...

    def steps(self, state: S) -> Iterable[Step[S]]:
        """Return all possible steps."""
        ...

    def ample(self, state: S) -> Iterable[Step[S]]:
        """Return a sufficient subset of the steps. The checker reaches the states of the other steps later."""
        ...

    def canonical(self, state: S) -> S:
        """Return the representative of all states that behave alike."""
        ...

    def wrong(self, state: S) -> str | None:
        """Describe the violated invariant, or return None."""
        ...

    def good(self, state: S) -> bool:
        """Whether the system has recovered."""
        ...


@dataclass(frozen=True, slots=True)
class Counterexample(Generic[S]):
    """`trace` leads from an initial state, whose action is (), to the last one. Its states are not canonical."""

    problem: str
    trace: list[Step[S]]

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.trace) - 1


@dataclass(frozen=True, slots=True)
class Result(Generic[S]):
    """If `counterexample` is None, all states were checked and none is wrong."""

    states: int
    transitions: int
    depth: int
    counterexample: Counterexample[S] | None


class TooManyStates(Exception):
    """The model exceeds the limit of states, so the result is open."""


def check(model: Model[S], *, recovery: bool = True, limit: int = 1_000_000) -> Result[S]:
    """Explore all states. Raises TooManyStates."""
    gc.disable()  # millions of tuples without cycles: the collector would use a quarter of the time
    try:
        return _Exploration(model, limit).run(recovery)
    finally:
        gc.enable()


class _Exploration(Generic[S]):
    def __init__(self, model: Model[S], limit: int) -> None:
        self._model = model
        self._limit = limit
        self._ids: dict[S, int] = {}
        self._origins: list[tuple[int, Step[S]]] = []  # for each state, its first predecessor and step
        self._before: list[list[int]] = []  # for each state, its predecessors by steps without faults
        self._transitions = 0

    def run(self, recovery: bool) -> Result[S]:
        depth = 0
        frontier = list(self._begin())
        while frontier:
            result: list[int] = []
            for number in frontier:
                state = self._origins[number][1].state
                if (problem := self._model.wrong(state)) is not None:
                    return self._result(depth, Counterexample(problem, self._trace(number)))
                result.extend(self._expand(number, state, recovery))
            frontier = result
            depth += bool(result)
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
        """Return the first state from which no good state can be reached."""
        good = [number for number, (_, step) in enumerate(self._origins) if self._model.good(step.state)]
        recovers = set(good)
        while good:
            for number in self._before[good.pop()]:
                if number not in recovers:
                    recovers.add(number)
                    good.append(number)
        return next((number for number in range(len(self._origins)) if number not in recovers), None)

    def _trace(self, number: int) -> list[Step[S]]:
        """Repeat the steps to a state without canonical names."""
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
