"""What a seed stands for: the size of the world, what is done in it, and what goes wrong when. Pure."""

import random
from dataclasses import dataclass
from enum import Enum
from math import ceil

Fault = str
"""A key of tests.simulation.faults.FAULTS."""


class Kind(Enum):
    """Which parts of the system a world has, beside API servers and etcd."""

    ELECTION = "election"
    """Candidates that bind under their token, and go on with it for a while after they have lost."""
    STORAGE = "storage"
    """Writers, readers, watches and informers; nobody schedules."""
    WHOLE = "whole"
    """Schedulers, a fleet of nodes, clients and informers."""


COMMON: tuple[Fault, ...] = (
    "pause-apiserver", "kill-apiserver", "stop-apiserver", "reset", "partition", "partition-one-way", "slow-network",
    "lossy-network", "set-clock", "compact", "etcd-away", "etcd-slow", "etcd-full", "etcd-lossy", "etcd-watch-late", "etcd-cut",
    "etcd-reset", "etcd-watch-stalls", "compact-behind", "kill-apiserver-and-compact", "stall-apiserver",
)  # fmt: skip
OWN: dict[Kind, tuple[Fault, ...]] = {
    Kind.ELECTION: ("pause-candidate", "kill-candidate", "stop-candidate"),
    Kind.STORAGE: (),
    Kind.WHOLE: (
        "pause-scheduler",
        "kill-scheduler",
        "kill-scheduler-while-late",
        "stop-scheduler",
        "pause-kubelet",
        "kill-kubelet",
        "stop-kubelet",
        "twin-kubelet",
        "twin-kubelet-killed",
    ),
}


BEARABLE = ("set-clock", "compact")
"""Faults that do not move leadership, while they come one at a time."""
BEARABLE_WITH_OTHERS = ("stop-apiserver", "kill-apiserver", "pause-apiserver", "stall-apiserver", "kill-apiserver-and-compact")
"""Likewise, where there is another API server to go on with."""
ROOM = 6
"""Pods of an owner that are alive at once, at most."""
LATE = ("kill-scheduler-while-late",)
"""Faults that strike only where there is somebody else to go on."""
FREEZING = ("pause-candidate", "pause-scheduler")
"""Faults under which their target stands still."""
ENDING = "end-term"
"""The fault under which the task of the leading scheduler's term ends."""
DOUBLING = ("twin-kubelet", "twin-kubelet-killed")
"""Faults under which two processes play the same nodes."""


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault: when it begins, in seconds of the load, and how long it is on."""

    fault: Fault
    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    kind: Kind
    servers: int
    replicas: int
    """Schedulers, or candidates."""
    nodes: int
    capacity: int
    """Pods of owners that a node has memory for: all of them, taken together, have a third to twice of what is needed."""
    owners: int
    """Clients that create, change and delete pods of their own."""
    rivals: int
    """Clients that write the same few pods."""
    followers: int
    """Watches and informers whose every word is recorded."""
    pace: float
    """Mean seconds between two steps of a client."""
    seconds: float
    """Of load, and of faults."""
    jitter: float
    """Mean seconds that the network adds to a packet's time."""
    blows: tuple[Blow, ...]


def plan(seed: int) -> Plan:
    rng = random.Random(f"plan {seed}")
    kind = rng.choices((Kind.ELECTION, Kind.STORAGE, Kind.WHOLE), (3, 3, 4))[0]
    seconds = rng.uniform(3.0, 6.0) if kind is Kind.WHOLE else rng.uniform(4.0, 9.0)
    choice = [*COMMON, *OWN[kind]]
    picked = rng.sample(choice, rng.choice((0, 1, 2, 3, 3, 4, 5)))
    count = rng.randint(len(picked), 2 * len(picked)) if picked else 0
    blows = [Blow(rng.choice(picked), rng.uniform(0.5, seconds), _duration(rng)) for _ in range(count)]
    if kind is not Kind.STORAGE and rng.random() < 0.25:
        lone = [fault for fault in choice if fault in BEARABLE_WITH_OTHERS + FREEZING + LATE] + 2 * [
            fault for fault in choice if fault in LATE
        ]
        blows = [Blow(rng.choice(lone), rng.uniform(0.5, 2.0), rng.uniform(0.3, 5.0))]
    blows += _ended_term(seed, kind, seconds)
    least = 2 if any(blow.fault in LATE for blow in blows) else 1
    nodes = rng.randint(1, 5) if kind is Kind.WHOLE else 0
    owners = 0 if kind is Kind.ELECTION else rng.randint(1, 2)
    return Plan(
        seed=seed,
        kind=kind,
        servers=max(least, rng.choice((1, 2, 2, 2, 3))),
        replicas=0 if kind is Kind.STORAGE else max(least, rng.choice((1, 2, 2, 3))),
        nodes=nodes,
        capacity=ceil(ROOM * owners * rng.choice((0.3, 0.5, 0.9, 1.0, 1.1, 2.0)) / nodes) if nodes else 0,
        owners=owners,
        rivals=0 if kind is Kind.ELECTION else rng.randint(0, 2),
        followers=rng.randint(0, 2) if kind is not Kind.STORAGE else rng.randint(1, 4),
        pace=rng.choice((0.05, 0.1, 0.2)),
        seconds=seconds,
        jitter=rng.choice((0.0002, 0.001, 0.005)),
        blows=tuple(sorted(blows, key=lambda blow: blow.at)),
    )


def _ended_term(seed: int, kind: Kind, seconds: float) -> list[Blow]:
    """Now and then a leader's term ends by itself. Chance of its own: the other seeds stay as they are."""
    rng = random.Random(f"ended term {seed}")
    if kind is not Kind.WHOLE or rng.random() >= 0.15:
        return []
    return [Blow(ENDING, rng.uniform(0.5, seconds), 0.5)]


def _duration(rng: random.Random) -> float:
    """Mostly short; now and then longer than any lease."""
    return rng.choice((rng.uniform(0.05, 0.5), rng.uniform(0.3, 2.0), rng.uniform(1.5, 5.0)))
