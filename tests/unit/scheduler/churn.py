"""A cluster in which everything changes, in virtual time, with an oracle that looks on.

    storm: nodes and pods come, go, change; binds are lost; leaders change --> quiet: one event, then a while nothing --> storm

The oracle compares every decision with what the scheduler knew, every bind with the truth, and what is left in a quiet time
with what a patient person would have found.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods import ended
from pinnace.api.resources import NODES, PODS, Resource
from pinnace.scheduler import scheduling_cycle
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.config import Configuration
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.scheduler import Scheduler
from pinnace.scheduler.scheduling_cycle import AttemptFailed, Placed, Unschedulable
from tests.unit.scheduler import churn_oracle as oracle
from tests.unit.scheduler.churn_events import GRACE, WEIGHTS, Events
from tests.unit.scheduler.churn_oracle import View
from tests.unit.scheduler.fake_api import Weather
from tests.unit.scheduler.stage import Stage

ROUNDS = 3
STORM = 40
"""Events."""
SINGLE = 5
"""Events in a quiet time."""
BACKOFF = 2.0
"""The longest, in seconds."""
PATIENCE = BACKOFF + GRACE + 1.0
"""Seconds for which a pod may go on pending while a node fits it, or while it could preempt: the longest backoff, the end of
victims, and what lags."""
RECENT = 3.0
"""Seconds after which a scheduler has heard of everything."""


class Churn:
    """`problems` is empty when all is well. `log` tells the story."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stage = Stage(Configuration(seed=seed, initial_backoff=0.2, max_backoff=BACKOFF), replicas=2)
        self.api = self.stage.api
        self.problems: list[str] = []
        self.log: list[str] = []
        self.decisions = 0
        self._storming = True
        self._unstable: dict[str, float] = defaultdict(lambda: float("-inf"))
        """When each node lost capacity, or was given a pod by hand."""
        self._state: Any = None
        self._fits: Sequence[tuple[str, str, str]] = ()
        """Pending pods that could go somewhere in this state: uid, whether as it is or by preemption, and where."""
        self._fits_since: dict[tuple[str, str, str], float] = {}
        self.api.lag = self._lag
        self.api.weather = self._weather
        self.api.on_write = self._written
        self.events = Events(self.rng, self.api, self._unsettle, self._later)

    def play(self) -> list[str]:
        with patch("pinnace.scheduler.scheduler.schedule_one", self._schedule_one):
            self.stage.play(self._story())
        return self.problems

    async def _story(self) -> None:
        for _ in range(self.rng.randint(3, 8)):
            self.events.add_node()
        for number in range(ROUNDS):
            self._storming = True
            for _ in range(STORM):
                self._event()
                await asyncio.sleep(self.rng.choice([0.0, 0.01, 0.1, 1.0]))
                self._look()
            self._storming = False
            self._say(f"round {number} is over")
            self._fits_since = {}
            self.events.sweep()
            for _ in range(SINGLE):
                for _ in range(int(PATIENCE) + 2):
                    await asyncio.sleep(1.0)
                    self._look()
                    self._look_for_the_forgotten()
                    if self.problems:
                        return
                self._event()
                self.events.sweep()

    def _event(self) -> None:
        (kind,) = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if kind == "depose":
            self._depose()
            return
        told = getattr(self.events, kind)()
        if told:
            self._say(f"{kind}: {told}")

    def _depose(self) -> None:
        leading = next(number for number in range(2) if self.stage.candidate(number).token is not None)
        following = self.rng.randrange(2)
        self._say(f"s{leading} is deposed, s{following} elected")
        self.stage.candidate(leading).depose()
        self.stage.candidate(following).elect()

    # --- the weather

    def _lag(self) -> float:
        return self.rng.choice([0.001, 0.02, 0.4]) if self._storming else 0.01

    def _weather(self) -> Weather:
        weights = (30, 1, 1, 1) if self._storming else (1, 0, 0, 0)
        return self.rng.choices(list(Weather), weights)[0]

    # --- the oracle

    def _schedule_one(self, pod: PodInfo, selector: NodeSelector) -> Placed | Unschedulable | AttemptFailed:
        scheduler = next(item for item in self.stage.schedulers if item._cache is selector.cache)
        view = _seen_by(scheduler)
        outcome = scheduling_cycle.schedule_one(pod, selector)
        self.decisions += 1
        name = outcome.node if isinstance(outcome, Placed) else "nowhere"
        self._say(f"s{self.stage.schedulers.index(scheduler)}: {pod.name} to {name} {_words(outcome)}")
        objections = oracle.objections(pod.pod, view)
        match outcome:
            case Placed(node):
                if objections[node]:
                    self._complain(f"{pod.key} is placed on {node}: {', '.join(objections[node])}")
            case Unschedulable():
                if fitting := [node for node, said in objections.items() if not said]:
                    self._complain(f"{pod.key} is refused ({outcome.message}), but fits {', '.join(fitting)}")
            case AttemptFailed(error):
                self._complain(f"{pod.key}: {error}")
        return outcome

    def _written(self, resource: Resource[Any], old: Any, new: Any) -> None:
        if resource is PODS:
            self.events.pod_written(old, new)
            if new is None:
                self._say(f"{old.metadata.name} is gone")
            elif new.metadata.HasField("deletionTimestamp") and not (
                old is not None and old.metadata.HasField("deletionTimestamp")
            ):
                self._say(f"{new.metadata.name} is to go")
            if new is not None and new.spec.nodeName and old is not None and not old.spec.nodeName:
                self._bound(new)

    def _bound(self, pod: Pod) -> None:
        node = pod.spec.nodeName
        self._say(f"{pod.metadata.name} is bound to {node}")
        if self._now() - self._unstable[node] < RECENT or node not in self.api.all(NODES):
            return
        view = self._truth()
        view = View(view.nodes, {**view.placed, pod.metadata.uid: (pod, node)})
        if result := oracle.overcommitted(view, node, pod):
            self._complain(f"{pod.metadata.name} makes {node} hold {', '.join(result)}")

    def _look(self) -> None:
        """The schedulers' caches say what their informers do; and nobody has forgotten a pod."""
        pending = {
            key: pod
            for key, pod in self.api.all(PODS).items()
            if not pod.spec.nodeName and not pod.metadata.HasField("deletionTimestamp")
        }
        for number, scheduler in enumerate(self.stage.schedulers):
            for difference in scheduler.debugger.show_cache().differences.first:
                self._complain(f"s{number}: {difference}")
            known = {queued.info.uid for queued, _ in scheduler._queue.list_pods(self._now())}
            known |= {info.uid for info in scheduler._cache.assumed_pods()}
            for key in scheduler._informers.pods.store.keys() & pending.keys():
                if pending[key].metadata.uid not in known:
                    self._complain(f"s{number}: {key} is neither queued nor assumed")

    def _look_for_the_forgotten(self) -> None:
        """Pods that a node fits, and has fitted for long. A pod for which room is made somewhere else than before has not been
        forgotten: others may have been faster, where room was made for it."""
        now, view = self._now(), self._truth()
        nominated = {pod.metadata.uid: node for pod, node in view.nominated}
        state = self.api.revision, nominated
        if state != self._state:
            pods = [pod for pod in self.api.all(PODS).values() if _waits(pod)]
            self._state, self._fits = state, [(pod.metadata.uid, *could) for pod in pods if (could := _could_go(pod, view))]
        keys = [(uid, how, nominated.get(uid, "")) for uid, how, _ in self._fits]
        self._fits_since = {key: self._fits_since.get(key, now) for key in keys}
        for key, (uid, how, nodes) in zip(keys, self._fits, strict=True):
            if now - self._fits_since[key] > PATIENCE:
                self._complain(f"{uid} is left pending for {PATIENCE:g} s: {how} {nodes}; {self._queued(uid)}")

    def _queued(self, uid: str) -> str:
        leading = next(scheduler for scheduler in self.stage.schedulers if scheduler._standby.token is not None)
        result = next((queued for queued, _ in leading._queue.list_pods(self._now()) if queued.info.uid == uid), None)
        return f"{result.place.value}, refused by {', '.join(sorted(result.refused_by))}" if result else "not in the queue"

    def _truth(self) -> View:
        leading = next(scheduler for scheduler in self.stage.schedulers if scheduler._standby.token is not None)
        placed = {pod.metadata.uid: (pod, pod.spec.nodeName) for pod in self.api.all(PODS).values() if _takes_room(pod)}
        return View(self.api.all(NODES), placed, _nominated(leading, self.api.all(PODS)))

    # --- what is said

    def _unsettle(self, node: str) -> None:
        self._unstable[node] = self._now()

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        loop = self.stage.loop
        loop.call_later(seconds, do, context=loop.world.context)

    def _now(self) -> float:
        return self.stage.loop.time()

    def _say(self, text: str) -> None:
        self.log.append(f"{self._now() - 100_000:9.3f} {text}")

    def _complain(self, problem: str) -> None:
        self.problems.append(problem)
        self._say(f"PROBLEM: {problem}")


def _words(outcome: Placed | Unschedulable | AttemptFailed) -> str:
    match outcome:
        case Unschedulable(_, message, nominated):
            return f"({message}{f' Nominated to {nominated}.' if nominated else ''})"
        case AttemptFailed(error):
            return f"({error})"
    return ""


def _seen_by(scheduler: Scheduler) -> View:
    pods = scheduler._informers.pods.store
    placed = {pod.metadata.uid: (pod, pod.spec.nodeName) for pod in pods.values() if pod.spec.nodeName}
    for info in scheduler._cache.assumed_pods():
        placed[info.uid] = (pods.get(info.key, info.pod), scheduler._cache.node_of(info.uid) or "")
    return View(dict(scheduler._informers.nodes.store), placed, _nominated(scheduler, pods))


def _nominated(scheduler: Scheduler, pods: Mapping[str, Pod]) -> list[tuple[Pod, str]]:
    nominated = scheduler._cache.nodes.nominated
    return [(pods.get(info.key, info.pod), nominated.node_of(info.uid)) for info in nominated]


def _takes_room(pod: Pod) -> bool:
    return bool(pod.spec.nodeName) and not ended(pod)


def _waits(pod: Pod) -> bool:
    return not (pod.spec.nodeName or pod.spec.schedulingGates or pod.metadata.HasField("deletionTimestamp"))


def _could_go(pod: Pod, view: View) -> tuple[str, str] | None:
    """How, and where, if anywhere."""
    if nodes := oracle.feasible(pod, view):
        return "it fits", ", ".join(nodes)
    nodes = oracle.after_preemption(pod, view)
    return ("it could preempt on", ", ".join(nodes)) if nodes else None
