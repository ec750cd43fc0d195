"""Why a pod is where it is, or nowhere: what `scheduler.explain` finds, and `pinnace why` shows. In between it is JSON, as
`pinnace.api.jsonrecords` writes and reads it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pinnace.api.elections_pb2 import Election

MOST_PROFILES = 10
"""Profiles that are named where there are many."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would help: what to do, and the nodes that could take the pod then."""

    text: str
    nodes: Sequence[str]
    plugins: Sequence[str] = ()
    """Those that would have nothing to object any more."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The nodes that a plugin refuses for one reason. A node may be refused by several, and for several reasons."""

    plugin: str
    reason: str
    nodes: Sequence[str]
    alone: int
    """On how many of them no other plugin refuses."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A node that can take the pod. Of several with the same total the rank is the same."""

    node: str
    rank: int
    total: float
    scores: Mapping[str, float]
    """By plugin, all that have a weight; 0 to 100, before weights."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a plugin refuses one node, in detail."""

    plugin: str
    details: Sequence[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """About one node."""

    node: str
    objections: Sequence[Objection]
    """If there is none the node can take the pod, and is among `ranking`."""


@dataclass(frozen=True, slots=True)
class Explanation:
    pod: str
    """namespace/name."""
    scheduler: str
    bound: str = ""
    """Its node, from which it was taken out for the computation."""
    nodes: int = 0
    feasible: int = 0
    problem: str = ""
    """Why it is not even tried, or the attempt fails, whatever the nodes are like."""
    message: str = ""
    """When no node is feasible: kube-scheduler's sentence."""
    refusals: Sequence[Refusal] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of the plugins that score this pod; the others have nothing to say about it."""
    ranking: Sequence[Ranked] = ()
    """The best nodes, the pod's own, and the one that was asked about."""
    best: int = 0
    """Nodes that share the best score."""
    remedies: Sequence[Remedy] = ()
    preemption: str = ""
    """What pods of lower priority could do about it."""
    asked: Asked | None = None
    extenders: Sequence[str] = ()
    """Those that hear of the pod. They are asked by the scheduler only: what they would say is not counted here."""
    configuration: str = ""
    """What the explanation follows, such as "the default configuration"."""
    unconfirmed: str = ""
    """Why that is not known to be the configuration of the scheduler that decides. Empty: it is."""
    filters_only: bool = False
    """Only what filters refuse is given, as the configuration is neither confirmed nor asked for."""
    node_is_gone: bool = False
    """It is bound, and there is no such node."""
    unknown: str = ""
    """Why nothing is known of where it would go. Then the rest is empty."""


class Trouble(StrEnum):
    USAGE = "usage"
    REFUSED = "refused"
    TOO_SLOW = "too slow"


@dataclass(frozen=True, slots=True)
class Unexplained:
    error: str
    kind: Trouble
    status: str = ""
    """Of a call that was refused: its google.rpc.Status, in base64."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What `python -m scheduler.explaining` writes: one of the two."""

    explanation: Explanation | None = None
    unexplained: Unexplained | None = None


def listing(names: Sequence[str], most: int = 3) -> str:
    """As explanations name things: "a, b, c and 4 more"."""
    more = len(names) - most
    return f"{', '.join(names[:most])} and {more} more" if more > 0 else ", ".join(names)


def decides(scheduler: str, elections: Iterable[Election]) -> Election | None:
    """The election whose leader places the pods of this scheduler; None: no running scheduler has a profile of that name."""
    return next((each for each in elections if scheduler in each.scheduler_names), None)


def no_profile(scheduler: str, elections: Iterable[Election]) -> str:
    """What is wrong with a `schedulerName` for which nothing decides, as a sentence without a full stop."""
    profiles = sorted({name for each in elections for name in each.scheduler_names})
    return f'no running scheduler has a profile named "{scheduler}"; profiles: {listing(profiles, MOST_PROFILES) or "none"}'
