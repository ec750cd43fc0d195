"""Dataclasses as JSON, for responses that are not API messages: explanations of scheduling decisions (`pinnace why`), and dumps
of a scheduler's state (`pinnace sched`).

Fields have the types str, int, float, bool, StrEnum, or a record type; a Sequence or a Mapping (by str) of these; or one of
these or None. A record type is not recursive. JSON keys are the field names in lowerCamelCase.

The writer and the reader can have different versions, for example during a rollout. The reader ignores unknown fields and uses
the defaults of missing fields. New fields therefore need a default, and fields without a default must not be removed. Values
that are present must have the declared type.
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
"""The metadata of a field that is omitted if it has its default value."""
_SCALARS: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((float, int), "a number"),
}
MOST_PROFILES = 10
"""The maximum number of profiles in an error message."""
T = TypeVar("T")


class Malformed(ValueError):
    """A value does not have the expected type, for example "ranking[2].rank: expected a whole number"."""

    def __init__(self, expected: str, path: str = "") -> None:
        path = path.removeprefix(".")
        super().__init__(f"{path}: {expected}" if path else expected)
        self._expected = expected
        self._path = path

    def with_path_step(self, step: str) -> "Malformed":
        """Return this error with `step` prepended to the path."""
        between = "" if not self._path or self._path.startswith("[") else "."
        return Malformed(self._expected, f"{step}{between}{self._path}")


def to_json(record: Any) -> dict[str, Any]:
    """Return the record as a dictionary for `json`, with fields in the order of their declaration."""
    kind: Any = type(record)
    result: dict[str, Any] = {}
    for name, key, omitted in _written_fields(kind):
        value = getattr(record, name)
        if omitted is MISSING or value != omitted:
            result[key] = _to_json_value(value)
    return result


def from_json(kind: type[R], value: object) -> R:
    """Convert the parsed JSON to a record. Raises Malformed."""
    hint: Any = kind
    return cast(R, _create_reader(hint)(value))


def _to_json_value(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: _to_json_value(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_to_json_value(item) for item in value]
    return to_json(value)


@lru_cache
def _written_fields(kind: type[Any]) -> list[tuple[str, str, Any]]:
    """Return the fields: name, key, and the default value if the field is omitted when it has the default."""
    return [(item.name, _json_key(item.name), item.default if "omitted" in item.metadata else MISSING) for item in fields(kind)]


def _json_key(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@lru_cache
def _create_reader(hint: Any) -> Callable[[Any], Any]:
    """Return a function that converts a value to this type, or raises Malformed."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return _optional_reader(arguments)
    if origin is Sequence:
        return _list_of(_create_reader(arguments[0]))
    if origin is Mapping:
        return _object_of(_create_reader(arguments[1]))
    if is_dataclass(origin or hint):
        return _record_reader(hint)
    return _scalar_reader(hint) if hint in _SCALARS else _choice_reader(hint)


def _scalar_reader(hint: Any) -> Callable[[Any], Any]:
    types, expected = _SCALARS[hint]

    def read(value: Any) -> Any:
        if type(value) not in types:
            raise Malformed(f"expected {expected}")
        return value

    return read


def _choice_reader(kind: type[StrEnum]) -> Callable[[Any], Any]:
    known = {member.value: member for member in kind}

    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise Malformed(f"expected one of {', '.join(known)}")
        return known[value]

    return read


def _optional_reader(alternatives: tuple[Any, ...]) -> Callable[[Any], Any]:
    (present,) = (_create_reader(alternative) for alternative in alternatives if alternative is not type(None))
    return lambda value: None if value is None else present(value)


def _list_of(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise Malformed("expected a list")
        return [_read_step(f"[{place}]", item, each) for place, each in enumerate(value)]

    return read


def _object_of(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: {key: _read_step(f"[{key}]", item, each) for key, each in _require_object(value).items()}


def _record_reader(hint: Any) -> Callable[[Any], Any]:
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    hints = get_type_hints(kind)
    known = []
    for item in fields(kind):
        of = hints[item.name]
        reader = _create_reader(of[arguments] if getattr(of, "__parameters__", ()) else of)
        known.append((item.name, _json_key(item.name), reader, item.default is MISSING and item.default_factory is MISSING))

    def read(value: Any) -> Any:
        there, result = _require_object(value), {}
        for name, key, reader, required in known:
            if key in there:
                result[name] = _read_step(key, reader, there[key])
            elif required:
                raise Malformed("missing field", key)
        return kind(**result)

    return read


def _require_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed("expected an object")
    return value


def _read_step(step: str, reader: Callable[[Any], Any], value: Any) -> Any:
    try:
        return reader(value)
    except Malformed as error:
        raise error.with_path_step(step) from None


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would make the pod schedulable, and the nodes that would then be feasible."""

    text: str
    nodes: Sequence[str]
    plugins: Sequence[str] = ()
    """The plugins that would no longer reject the nodes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The nodes that a plugin rejects for one reason. A node can be rejected by several plugins and for several reasons."""

    plugin: str
    reason: str
    nodes: Sequence[str]
    alone: int
    """The number of nodes that no other plugin rejects."""


@dataclass(frozen=True, slots=True)
class NodePluginScores:
    """A feasible node. Nodes with the same total have the same rank."""

    node: str
    rank: int
    total: float
    scores: Mapping[str, float]
    """The scores from 0 to 100 before weighting, for all plugins with a weight."""


@dataclass(frozen=True, slots=True)
class PluginRejectionRecord:
    """The reasons for which a plugin rejects one node."""

    plugin: str
    details: Sequence[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """The result for the node that was specified in the request."""

    node: str
    objections: Sequence[PluginRejectionRecord]
    """If it is empty, the node is feasible and part of `ranking`."""


@dataclass(frozen=True, slots=True)
class Explanation:
    pod: str
    """namespace/name of the pod."""
    scheduler: str
    bound: str = ""
    """The node of a bound pod. The pod is removed from this node for the computation."""
    nodes: int = 0
    feasible: int = 0
    problem: str = ""
    """The reason why the pod is not scheduled on any node, for example a scheduling gate."""
    message: str = ""
    """kube-scheduler's message if no node is feasible."""
    refusals: Sequence[Refusal] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weights of the plugins that score this pod. Other plugins skip it."""
    ranking: Sequence[NodePluginScores] = ()
    """The best nodes, the node of the pod, and the specified node."""
    best: int = 0
    """The number of nodes with the best score."""
    remedies: Sequence[Remedy] = ()
    preemption: str = ""
    """The possible result of a preemption of pods with lower priority."""
    asked: Asked | None = None
    extenders: Sequence[str] = ()
    """The extenders that are interested in the pod. Only the scheduler calls them, so the explanation excludes their
    results."""
    configuration: str = ""
    """The configuration that the explanation is based on, for example "the default configuration"."""
    unconfirmed: str = ""
    """The reason why the scheduler may use another configuration, or "" if the configuration is confirmed."""
    filters_only: bool = False
    """Whether the explanation contains only the results of filters. True if the configuration is neither confirmed nor
    specified."""
    node_is_gone: bool = False
    """Whether the pod is bound to a node that does not exist."""
    unknown: str = ""
    """The reason why no explanation is available. All other fields are empty in this case."""


class PreemptionProblem(StrEnum):
    USAGE = "usage"
    REFUSED = "refused"
    TOO_SLOW = "too slow"


@dataclass(frozen=True, slots=True)
class Unexplained:
    error: str
    kind: PreemptionProblem
    status: str = ""
    """The google.rpc.Status of a rejected call in base64."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The output of `python -m pinnace.scheduler.explaining`. Exactly one field is set."""

    explanation: Explanation | None = None
    unexplained: Unexplained | None = None


def format_list(names: Sequence[str], most: int = 3) -> str:
    """Format a list of names, for example "a, b, c and 4 more"."""
    more = len(names) - most
    return f"{', '.join(names[:most])} and {more} more" if more > 0 else ", ".join(names)


def deciding_election(scheduler: str, elections: Iterable[Election]) -> Election | None:
    """Return the election whose leader schedules the pods of this scheduler, or None if no running scheduler has this
    profile."""
    return next((election for election in elections if scheduler in election.scheduler_names), None)


def no_profile(scheduler: str, elections: Iterable[Election]) -> str:
    """Return the error for a `schedulerName` without a running scheduler, as a sentence without a period."""
    profiles = sorted({name for election in elections for name in election.scheduler_names})
    return f'no running scheduler has a profile named "{scheduler}"; profiles: {format_list(profiles, MOST_PROFILES) or "none"}'


class QueuePlace(StrEnum):
    """The part of the scheduling queue that contains a pod."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


@dataclass(frozen=True, slots=True)
class BoundedList(Generic[T]):
    """A list that is limited to its first items. `number` is the total number of items."""

    number: int
    first: Sequence[T]


@dataclass(frozen=True, slots=True)
class Dump:
    path: ClassVar[str]
    """The path of the page on the scheduler's metrics address."""
    name: str
    """The name of the replica."""
    leading: bool


@dataclass(frozen=True, slots=True)
class Queued:
    pod: str
    """namespace/name of the pod, as in the classes below."""
    priority: int
    attempts: int
    seconds: float
    """Seconds since the pod was queued or failed last."""
    refused_by: Sequence[str]
    """The plugins that rejected the pod."""
    backoff: float | None = field(default=None, metadata=OMITTED)
    """The remaining backoff in seconds, for pods in the backoff queue."""


@dataclass(frozen=True, slots=True)
class InPermit:
    """A pod that waits in Permit with a reserved node."""

    pod: str
    node: str
    plugins: Sequence[str]
    """The plugins that have not allowed the pod."""


@dataclass(frozen=True, slots=True)
class QueueDump(Dump):
    path = "/debug/queue"
    counts: Mapping[str, int]
    """The number of pods by place. A newer version may define more places."""
    places: Mapping[str, Sequence[Queued]]
    """The first pods by place."""
    permit: BoundedList[InPermit]


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """The free and allocatable resources of a node, as quantities by resource name."""

    node: str
    free: Mapping[str, str]
    allocatable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Assumed:
    """A pod that is assumed on a node and not confirmed as bound."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class CacheDump(Dump):
    path = "/debug/cache"
    nodes: BoundedList[NodeRoom]
    pods: int
    """The number of pods on nodes, including assumed pods."""
    assumed: BoundedList[Assumed]
    differences: BoundedList[str]
    """Differences between the cache and the informers, and incorrect sums, one sentence each."""
