"""Dataclasses as JSON, for answers that are not messages of the API: explanations of scheduling decisions (`pinnace why`), and
dumps of a scheduler's state (`pinnace sched`).

The fields of a record are text, numbers and bools, a StrEnum, records, a Sequence or a Mapping (by str) of these, or one of
these or None; no record contains another of its own type. In JSON a field has its own name, in lowerCamelCase.

Writer and reader may be of different versions, as during a rollout. The reader ignores unknown fields, and uses the default of
missing ones. So new fields need a default, and fields without a default are never removed. Present values must have their type.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import lru_cache
from types import UnionType
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from pinnace.api.elections_pb2 import Election

R = TypeVar("R")

OMITTED = {"omitted": True}
"""Metadata of a field that is not written while it has its default."""
_SCALARS: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((float, int), "a number"),
}


class Malformed(ValueError):
    """Something is not of the type that is expected there: "ranking[2].rank: expected a whole number"."""

    def __init__(self, expected: str, path: str = "") -> None:
        path = path.removeprefix(".")
        super().__init__(f"{path}: {expected}" if path else expected)
        self._expected = expected
        self._path = path

    def below(self, step: str) -> "Malformed":
        """As whoever reads what is around it tells it."""
        between = "" if not self._path or self._path.startswith("[") else "."
        return Malformed(self._expected, f"{step}{between}{self._path}")


def to_json(record: Any) -> dict[str, Any]:
    """What `json` writes. The fields are in their order."""
    kind: Any = type(record)
    found: dict[str, Any] = {}
    for name, key, omitted in _written(kind):
        value = getattr(record, name)
        if omitted is MISSING or value != omitted:
            found[key] = _value(value)
    return found


def from_json(kind: type[R], value: object) -> R:
    """The record, of what `json` has read. Raises Malformed."""
    hint: Any = kind
    return cast(R, _reader(hint)(value))


def _value(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: _value(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_value(each) for each in value]
    return to_json(value)


@lru_cache
def _written(kind: type[Any]) -> list[tuple[str, str, Any]]:
    """The fields: name, key, and the value of which nothing is written."""
    return [(each.name, _key(each.name), each.default if "omitted" in each.metadata else MISSING) for each in fields(kind)]


def _key(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@lru_cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """What reads a value of that type, and raises Malformed."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return _optional(arguments)
    if origin is Sequence:
        return _list_of(_reader(arguments[0]))
    if origin is Mapping:
        return _object_of(_reader(arguments[1]))
    if is_dataclass(origin or hint):
        return _record(hint)
    return _scalar(hint) if hint in _SCALARS else _choice(hint)


def _scalar(hint: Any) -> Callable[[Any], Any]:
    types, expected = _SCALARS[hint]

    def read(value: Any) -> Any:
        if type(value) not in types:
            raise Malformed(f"expected {expected}")
        return value

    return read


def _choice(kind: type[StrEnum]) -> Callable[[Any], Any]:
    known = {each.value: each for each in kind}

    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise Malformed(f"expected one of {', '.join(known)}")
        return known[value]

    return read


def _optional(alternatives: tuple[Any, ...]) -> Callable[[Any], Any]:
    (present,) = (_reader(each) for each in alternatives if each is not type(None))
    return lambda value: None if value is None else present(value)


def _list_of(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise Malformed("expected a list")
        return [_at(f"[{place}]", item, each) for place, each in enumerate(value)]

    return read


def _object_of(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: {key: _at(f"[{key}]", item, each) for key, each in _object(value).items()}


def _record(hint: Any) -> Callable[[Any], Any]:
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    hints = get_type_hints(kind)
    known = []
    for each in fields(kind):
        of = hints[each.name]
        reader = _reader(of[arguments] if getattr(of, "__parameters__", ()) else of)
        known.append((each.name, _key(each.name), reader, each.default is MISSING and each.default_factory is MISSING))

    def read(value: Any) -> Any:
        there, found = _object(value), {}
        for name, key, reader, required in known:
            if key in there:
                found[name] = _at(key, reader, there[key])
            elif required:
                raise Malformed("it is missing", key)
        return kind(**found)

    return read


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed("expected an object")
    return value


def _at(step: str, reader: Callable[[Any], Any], value: Any) -> Any:
    try:
        return reader(value)
    except Malformed as error:
        raise error.below(step) from None


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


T = TypeVar("T")


class Place(StrEnum):
    """Where in the queue a pod is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


@dataclass(frozen=True, slots=True)
class Bounded(Generic[T]):
    """How many there are, and the first of them."""

    number: int
    first: Sequence[T]


@dataclass(frozen=True, slots=True)
class Dump:
    path: ClassVar[str]
    """Of the page, at the address of the scheduler's metrics."""
    name: str
    """The replica's."""
    leading: bool


@dataclass(frozen=True, slots=True)
class Queued:
    pod: str
    """namespace/name, here and below."""
    priority: int
    attempts: int
    seconds: float
    """Since it arrived, or failed last."""
    refused_by: Sequence[str]
    """Plugins."""
    backoff: float | None = field(default=None, metadata=OMITTED)
    """Seconds that it is not tried yet, whatever happens; of those that back off."""


@dataclass(frozen=True, slots=True)
class InPermit:
    """A pod that waits in Permit, with a place on a node."""

    pod: str
    node: str
    plugins: Sequence[str]
    """Those that have not allowed it yet."""


@dataclass(frozen=True, slots=True)
class QueueDump(Dump):
    path = "/debug/queue"
    counts: Mapping[str, int]
    """Pods by place; a later version may have more places than Place."""
    places: Mapping[str, Sequence[Queued]]
    """The first of them, by place."""
    permit: Bounded[InPermit]


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What a node has, by resource, as quantities."""

    node: str
    free: Mapping[str, str]
    allocatable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Assumed:
    """A pod that counts on a node, and is not known to be bound."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class CacheDump(Dump):
    path = "/debug/cache"
    nodes: Bounded[NodeRoom]
    pods: int
    """On nodes, those that are assumed among them."""
    assumed: Bounded[Assumed]
    differences: Bounded[str]
    """Between the cache and what the informers hold, and sums that are wrong: a sentence each."""
