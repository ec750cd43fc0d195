"""Honest histories: a small, correct cluster, driven by a seed, whose events are recorded.

    World(seed).live()   load with two deposed leaders, watchers that reconnect and relist, lost responses; quiet; end

This module does not depend on the checkers. Time is virtual: each step takes some milliseconds.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from pinnace.api.resources import LEASES, NODES, PODS, PRIORITY_CLASSES, election_key
from pinnace.history.records import (
    CallItem,
    CallRecord,
    ContainerRun,
    ElectionFacts,
    Facts,
    FaultRecord,
    NodeFacts,
    Observation,
    PodFacts,
    Record,
    RunInfo,
    RunPhase,
    StoredChange,
)
from tests.unit.check.follower import Follower

PRIVATE = PRIORITY_CLASSES.prefix
SETTLE, LEADERLESS, AFTERMATH = 5.0, 2.0, 0.2
REQUESTS = (("pods", 1), ("cpu", 100))
ALLOCATABLE = (("cpu", 4000), ("pods", 110))
KILL, FLOOD, ATTACK = "kill-leader", "flood", "attack-bodies"
BYSTANDER, GATEWAY_BYSTANDER = "bystander", "gateway-bystander"
BIND_WITHIN, ANSWER_WITHIN, GATEWAY_ANSWERS_WITHIN = 6.0, 0.5, 0.25
SCHEDULERS = ("default-scheduler",)
"""Whose pods the leaders bind."""
KUBELET = "kubelet-0/1"


class World:
    def __init__(self, seed: int, *, nodes: int = 3, steps: int = 120) -> None:
        self.rng = random.Random(seed)
        self.records: list[Record] = [
            RunInfo(
                started=1.5e9,
                seed=seed,
                faults=(KILL,),
                private=(PRIVATE,),
                fenced=(PODS.prefix,),
                settle=SETTLE,
                elections=("scheduler",),
                leaderless=LEADERLESS,
                aftermath=AFTERMATH,
                tolerated=(FLOOD, ATTACK),
                bind_within=BIND_WITHIN,
                bystanders=(BYSTANDER,),
                hostile=(FLOOD,),
                answer_within=ANSWER_WITHIN,
                gateway_bystanders=(GATEWAY_BYSTANDER,),
                attacks=(ATTACK,),
                gateway_answers_within=GATEWAY_ANSWERS_WITHIN,
                observing=(FLOOD,),
            )
        ]
        self.now = 100.0
        self.revision = 1
        self.state: dict[str, StoredChange] = {}
        self.past: list[tuple[StoredChange, StoredChange | None]] = []
        """Every change, and what it replaced."""
        self.nodes = [f"n{number}" for number in range(nodes)]
        self.steps = steps
        self.token = 0
        self._serial = 0
        self._calls = 0
        self._followers = [
            Follower(self, "all", PODS.prefix),
            Follower(self, "of-n0", PODS.prefix, "spec.nodeName=n0"),
            Follower(self, "informer", PODS.prefix, informer=True),
            Follower(self, "classes", PRIVATE),
        ]

    def live(self) -> list[Record]:
        for name in self.nodes:
            self.commit((NODES.prefix + name, NodeFacts(f"uid-{name}", ALLOCATABLE)))
        self.elect()
        self.say(RunPhase(self.now, "load"))
        for step in range(self.steps):
            self.rng.choice(self._moves())()
            if step in (self.steps // 3, 2 * self.steps // 3):
                self.depose()
            for follower in self._followers:
                follower.move(self.rng)
        self.flood()
        self.attack()
        self.say(RunPhase(self.now, "quiet"))
        for key in [*self._pods(node=False)]:
            self.bind(key)
        for key in [*self._pods(phase="Pending")]:
            self.run(key)
        for follower in self._followers:
            follower.catch_up()
        self.tick(2 * SETTLE)
        self.say(ContainerRun(self.now, "", "", "", "alive", KUBELET))
        self.say(RunPhase(self.now, "end"))
        return self.records

    def _moves(self) -> list[Callable[[], None]]:
        bound = [key for key in self._pods(phase="Pending") if self.pod(key).node]
        unbound = [*self._pods(node=False)]
        running = [*self._pods(phase="Running")]
        classes = [key for key in self.state if key.startswith(PRIVATE)]
        moves: list[Callable[[], None]] = [
            self.create,
            self.create,
            self.create_class,
            self.lose_answer,
            self.list_pods,
            self.heartbeat,
        ]
        if unbound:
            moves += [lambda: self.bind(self.rng.choice(unbound))] * 3
        if bound:
            moves += [lambda: self.run(self.rng.choice(bound))] * 3
        if running:
            moves += [lambda: self.finish(self.rng.choice(running)), lambda: self.get(self.rng.choice(running))]
            moves += [lambda: self.delete(self.rng.choice(running)), lambda: self.relabel(self.rng.choice(running))]
        if classes:
            moves += [
                lambda: self.update_class(self.rng.choice(classes)),
                lambda: self.read_while_written(self.rng.choice(classes)),
            ]
            moves += [lambda: self.refuse(self.rng.choice(classes)), lambda: self.miss()]
        return moves

    # State

    def say(self, record: Record) -> None:
        self.records.append(record)

    def tick(self, seconds: float = 0.0) -> float:
        self.now += seconds or self.rng.uniform(0.001, 0.01)
        return self.now

    def commit(self, *changes: tuple[str, Facts | None], delete: bool = False, lease: int = 0) -> int:
        """One transaction. The recorder receives it slightly later."""
        self.revision += 1
        self.tick()
        for key, facts in changes:
            before = self.state.get(key)
            if delete:
                stored = StoredChange(self.now, self.revision, key)
                del self.state[key]
            else:
                created = before.create_revision if before else self.revision
                stored = StoredChange(self.now, self.revision, key, self._digest(), created, lease, facts)
                self.state[key] = stored
            self.past.append((stored, before))
            self.say(stored)
        return self.revision

    def pod(self, key: str) -> PodFacts:
        facts = self.state[key].facts
        assert isinstance(facts, PodFacts)
        return facts

    def _pods(self, *, node: bool = True, phase: str = "") -> Iterator[str]:
        for key, stored in self.state.items():
            facts = stored.facts
            if isinstance(facts, PodFacts) and (node or not facts.node) and (not phase or facts.phase == phase):
                yield key

    def _digest(self) -> str:
        return f"{self.rng.getrandbits(64):016x}"

    # Control plane

    def elect(self) -> None:
        self._serial += 1
        session = 0x100 + self._serial
        key = election_key("scheduler")
        self.token = self.commit((key, ElectionFacts(f"scheduler-{self._serial}", session, SCHEDULERS)), lease=session)

    def depose(self) -> None:
        """Kill the leader and elect another one."""
        fault = FaultRecord(self.token, KILL, f"scheduler-{self._serial}", self.now)
        self.say(fault)
        self.commit((election_key("scheduler"), None), delete=True)
        self.say(replace(fault, ended=self.now))
        self.elect()

    def flood(self) -> None:
        """Another user floods a server long after the last change of leader.

        The leader binds, and calls of a third user are answered.
        """
        self.tick(2 * AFTERMATH)
        for _ in range(2):
            self.create()
        fault = FaultRecord(10_000, FLOOD, "apiserver-0", self.now)
        self.say(fault)
        for key in [*self._pods(node=False)][:1]:
            self.bind(key)
        for _ in range(12):
            with self.call(BYSTANDER, "get") as call:
                call.code = "NOT_FOUND"
                call.items = [CallItem(PODS.key("default", "never"), 0)]
        self.say(Observation(self.tick(), fault.id, fault.target, "calls_refused_total", 40.0, least=1.0))
        self.say(replace(fault, ended=self.tick()))

    def attack(self) -> None:
        """Another user attacks a gateway, and calls of its other users are answered."""
        fault = FaultRecord(10_001, ATTACK, "gateway-0", self.now)
        self.say(fault)
        for _ in range(12):
            with self.call(GATEWAY_BYSTANDER, "get") as call:
                call.code = "404"
                call.items = [CallItem(PODS.key("default", "never"), 0)]
        self.say(replace(fault, ended=self.tick()))

    def bind(self, key: str) -> None:
        facts = replace(self.pod(key), node=self.rng.choice(self.nodes), election="scheduler", token=self.token)
        with self.call(f"scheduler-{self._serial}", "bind") as call:
            call.item(key, self.commit((key, facts)))

    def run(self, key: str) -> None:
        facts = self.pod(key)
        self.say(ContainerRun(self.tick(), facts.node, facts.uid, key, "started", KUBELET))
        self.commit((key, replace(facts, phase="Running", started=1_500_000_000 + int(self.now))))

    def finish(self, key: str) -> None:
        facts = self.pod(key)
        self.say(ContainerRun(self.tick(), facts.node, facts.uid, key, "stopped", KUBELET))
        self.commit((key, replace(facts, phase="Succeeded")))

    def heartbeat(self) -> None:
        self.commit((LEASES.prefix + "kube-node-lease/n0", None))

    # Clients

    def call(self, client: str, verb: str, resource: str = "pods") -> "Caller":
        self._calls += 1
        return Caller(self, client, self._calls, verb, resource)

    def create(self) -> None:
        self._serial += 1
        key = PODS.key("default", f"p{self._serial % 40}")
        if key in self.state:
            return
        with self.call("user", "create") as call:
            call.item(key, self.commit((key, PodFacts(f"uid-{self._serial}", phase="Pending", requests=REQUESTS))))

    def delete(self, key: str) -> None:
        """Mark the pod for deletion first. Then the kubelet removes it."""
        facts = self.pod(key)
        with self.call("user", "delete") as call:
            call.item(key, self.commit((key, replace(facts, terminating=True))))
        self.say(ContainerRun(self.tick(), facts.node, facts.uid, key, "stopped", KUBELET))
        self.commit((key, replace(facts, terminating=True, phase="Succeeded")))
        self.commit((key, None), delete=True)

    def relabel(self, key: str) -> None:
        """Sometimes sets the current value, which writes nothing."""
        with self.call("user", "update") as call:
            facts = self.pod(key)
            if self.rng.random() < 0.7:
                facts = replace(facts, labels=self._digest())
                self.commit((key, facts))
            call.item(key, self.state[key].revision, labels=facts.labels)

    def get(self, key: str) -> None:
        with self.call("user", "get") as call:
            call.item(key, self.state[key].revision)

    def list_pods(self) -> None:
        """Read pages of 3, with writes between them."""
        snapshot, there = self.revision, [self.state[key] for key in sorted(self.state) if key.startswith(PODS.prefix)]
        first = self._calls + 1
        for start in range(0, max(1, len(there)), 3):
            with self.call("user", "list") as call:
                call.of, call.snapshot, call.more = first, snapshot, start + 3 < len(there)
                call.items = [CallItem(stored.key, stored.revision, "", stored.digest) for stored in there[start : start + 3]]
            self.heartbeat()

    def create_class(self) -> None:
        self._serial += 1
        with self.call("user", "create", "priorityclasses") as call:
            key = f"{PRIVATE}c{self._serial}"
            call.item(key, self.commit((key, None)))

    def update_class(self, key: str) -> None:
        with self.call("user", "update", "priorityclasses") as call:
            expected = self.state[key].revision
            call.item(key, self.commit((key, None)), expected=expected)

    def read_while_written(self, key: str) -> None:
        """The read may return the old version, although it ends after the write."""
        old = self.state[key]
        with self.call("reader", "get", "priorityclasses") as call:
            self.tick()
            self.update_class(key)
            result = self.rng.choice((old, self.state[key]))
            call.items = [CallItem(key, result.revision, "", result.digest)]

    def lose_answer(self) -> None:
        """The write was executed, possibly after the client's timeout, or it was not."""
        self._serial += 1
        key = f"{PRIVATE}c{self._serial}"
        with self.call("user", "create", "priorityclasses") as call:
            call.outcome, call.code = "unknown", "DEADLINE_EXCEEDED"
            call.items = [CallItem(key, outcome="unknown")]
            early = self.rng.random() < 0.5
            if early:
                self.commit((key, None))
        if not early and self.rng.random() < 0.5:
            self.heartbeat()
            self.commit((key, None))

    def refuse(self, key: str) -> None:
        with self.call("user", "create", "priorityclasses") as call:
            call.outcome, call.code = "refused", "ALREADY_EXISTS"
            call.items = [CallItem(key, outcome="refused")]

    def miss(self) -> None:
        with self.call("user", "get", "priorityclasses") as call:
            call.code = "NOT_FOUND"
            call.items = [CallItem(f"{PRIVATE}never", 0)]


class Caller:
    """A context manager that records one call, with its start and end."""

    def __init__(self, world: World, client: str, number: int, verb: str, resource: str) -> None:
        self._world = world
        self._call = CallRecord(client, number, f"apiserver-{number % 2}", verb, resource, 0.0, 0.0)
        self.items: list[CallItem] = []
        self.outcome, self.code = "ok", ""
        self.of = self.snapshot = 0
        self.more = False

    def __enter__(self) -> "Caller":
        self._call = replace(self._call, began=self._world.tick())
        return self

    def item(self, key: str, revision: int, *, expected: int = 0, labels: str | None = None) -> None:
        """The object in the response, in its current state."""
        stored = self._world.state[key]
        self.items.append(CallItem(key, revision, "", stored.digest, expected=expected, labels=labels))

    def __exit__(self, *_: object) -> None:
        self._world.say(
            replace(
                self._call,
                ended=self._world.tick(),
                outcome=self.outcome,
                code=self.code,
                items=tuple(self.items),
                prefix=PODS.prefix if self._call.verb == "list" else "",
                of=self.of,
                snapshot=self.snapshot,
                more=self.more,
            )
        )
