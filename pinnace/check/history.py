"""A history: the record of a run. Checkers read nothing else.

    Stored, Compaction   etcd's changes, from a watch since revision 1 that does not pass through the API server
    Call, Told           what clients saw: every call with its start and end, every event of every watch
    Ran                  what kubelets report that they ran
    Fault, Phase         what was done to the cluster, and when
    Observed             what a fault measured while it was active
    Run                  the parameters of the run: the first record

All times are seconds of CLOCK_MONOTONIC (`time.monotonic()`), comparable between the processes of one machine, except for
`Run.started`. `key` is always etcd's ("/registry/pods/default/x"). Records of several sources may be interleaved in any order,
but those of one source (etcd; one watch stream; one kubelet) are in the order in which they happened.

In a file a record is one JSON object per line; "t" names its type, and fields with their default value are left out. Objects
are reduced to facts: the parts that checkers need.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from hashlib import blake2b
from os import SEEK_END
from pathlib import Path
from typing import Any, ClassVar, Literal

from google.protobuf.message import Message

from pinnace.api import fences, wellknown
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.pods import ENDED
from pinnace.api.resources import ALL, ELECTIONS_PREFIX, LEASES, NODES, PODS, Object, prefix_of
from pinnace.fit import allocatable, pod_requests

Amounts = tuple[tuple[str, int], ...]
"""(resource, amount): millicores of cpu, bytes, or a count; see pinnace.fit."""

_MESSAGES: dict[str, type[Any]] = {resource.prefix: resource.message for resource in ALL}


@dataclass(frozen=True, slots=True)
class PodFacts:
    uid: str
    node: str = ""
    """spec.nodeName; "" while it is not bound."""
    election: str = ""
    """Whose leader bound it; "": nobody, or somebody without a fence."""
    token: int = 0
    """The fencing token under which it was bound."""
    phase: str = ""
    requests: Amounts = ()
    started: int = 0
    """status.startTime in Unix seconds: when a kubelet accepted it; 0: none has."""
    terminating: bool = False
    labels: str = ""
    """`labels_digest`."""
    picky: bool = False
    """It asks for more than room (selectors, affinity, host ports, another scheduler): whether it is feasible is not judged."""
    scheduler: str = wellknown.DEFAULT_SCHEDULER
    """spec.schedulerName."""

    @property
    def by_scheduler(self) -> bool:
        return bool(self.election)

    @property
    def finished(self) -> bool:
        return self.phase in ENDED


@dataclass(frozen=True, slots=True)
class NodeFacts:
    uid: str
    allocatable: Amounts = ()
    open: bool = True
    """Takes any pod that fits: it is neither cordoned nor tainted."""


@dataclass(frozen=True, slots=True)
class ElectionFacts:
    holder: str
    session: int = 0
    """The etcd lease of the holder's session."""
    scheduler_names: tuple[str, ...] = ()
    """The schedulers whose pods the holder may bind."""


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    holder: str


Facts = PodFacts | NodeFacts | ElectionFacts | LeaseFacts


def digest(obj: Message | Object) -> str:
    """16 hex digits that are equal for equal objects, whatever their resourceVersion and however their maps are ordered."""
    message: Any = obj
    version = message.metadata.resourceVersion
    message.metadata.resourceVersion = ""
    try:
        return _hash(message.SerializeToString(deterministic=True))
    finally:
        message.metadata.resourceVersion = version


def labels_digest(labels: Mapping[str, str]) -> str:
    """16 hex digits that are equal for equal labels; "" for none."""
    return _hash(repr(sorted(labels.items())).encode()) if labels else ""


def digest_of(key: str, value: bytes | None) -> str:
    """The `digest` of an object as etcd has it; of its bytes, when the key is no API object's. "" for no value: deleted."""
    if value is None:
        return ""
    message = _MESSAGES.get(prefix_of(key))
    return digest(message.FromString(value)) if message else _hash(value)


def facts_of(key: str, value: bytes | None) -> Facts | None:
    """None for a kind that no checker looks into, and for a deletion (no value)."""
    if not value:
        return None
    if key.startswith(PODS.prefix):
        return pod_facts(Pod.FromString(value))
    if key.startswith(NODES.prefix):
        return node_facts(Node.FromString(value))
    if key.startswith(ELECTIONS_PREFIX):
        election = Election.FromString(value)
        return ElectionFacts(election.holder, election.session, tuple(election.scheduler_names))
    if key.startswith(LEASES.prefix):
        return LeaseFacts(Lease.FromString(value).spec.holderIdentity)
    return None


def pod_facts(pod: Pod) -> PodFacts:
    metadata, spec = pod.metadata, pod.spec
    fence = fences.of(pod)
    requests = pod_requests(pod)
    picky = bool(
        spec.nodeSelector
        or spec.HasField("affinity")
        or spec.topologySpreadConstraints
        or requests.ports
        or spec.schedulerName not in ("", wellknown.DEFAULT_SCHEDULER)
    )
    return PodFacts(
        uid=metadata.uid,
        node=spec.nodeName,
        election=fence.election,
        token=fence.token,
        scheduler=spec.schedulerName or wellknown.DEFAULT_SCHEDULER,
        phase=pod.status.phase,
        requests=requests.amounts,
        started=pod.status.startTime.seconds,
        terminating=metadata.HasField("deletionTimestamp"),
        labels=labels_digest(metadata.labels),
        picky=picky,
    )


def node_facts(node: Node) -> NodeFacts:
    is_open = not node.spec.unschedulable and not any(t.effect in ("NoSchedule", "NoExecute") for t in node.spec.taints)
    return NodeFacts(node.metadata.uid, tuple(sorted(allocatable(node).items())), is_open)


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


VERSION = 2
"""2: elections name the schedulers whose pods their holders bind."""

Outcome = Literal["ok", "refused", "unknown"]
"""refused: it certainly did not happen. unknown: the answer was lost; it may have happened, or may yet."""
Verb = Literal["create", "get", "list", "update", "update_status", "delete", "bind"]
Word = Literal["began", "added", "modified", "deleted", "bookmark", "relisted", "synced", "ended"]


@dataclass(frozen=True, slots=True)
class Run:
    tag: ClassVar[str] = "run"
    started: float
    """Unix seconds."""
    seed: int = 0
    what: str = ""
    """For people: the command, or the scenario."""
    version: int = VERSION
    faults: tuple[str, ...] = ()
    """Names of the faults that are meant to happen. One that never fires makes the run void."""
    private: tuple[str, ...] = ()
    """Prefixes of keys that nobody but the recorded calls writes: every change of these must be explained by a call."""
    fenced: tuple[str, ...] = ()
    """I3: prefixes of keys of pods that nobody binds without a fence."""
    settle: float = 60.0
    """L1: seconds after the last fault within which every feasible pod is bound and Running."""
    elections: tuple[str, ...] = ()
    """L2: names of elections that have candidates when the load begins, so that somebody must lead soon after."""
    unsteady: tuple[str, ...] = ()
    """L2: names of elections whose holders come and go as they like, which are not judged."""
    leaderless: float = 10.0
    """L2: most seconds without a leader, but for the time that faults are on."""
    aftermath: float = 3.0
    """L2: seconds after its end for which a fault may still move leadership: a lease that runs out, and a little more."""
    harmless: tuple[str, ...] = ()
    """L2: names of faults that do not move leadership, nor delay it, however many there are."""
    bearable: tuple[str, ...] = ()
    """L2: names of faults that do not move leadership, while they come one at a time."""
    freezing: tuple[str, ...] = ()
    """L2: names of faults under which their target, the holder of an election, stands still."""
    tolerated: tuple[str, ...] = ()
    """L3, L4: names of faults that excuse no delay."""
    bind_within: float = 10.0
    """L3: most seconds in which pods wait and none is bound, without the time that other faults cover."""
    bystanders: tuple[str, ...] = ()
    """L4: names of the clients whose calls must be answered in time while a hostile fault is on."""
    hostile: tuple[str, ...] = ()
    """L4: names of faults by which one user does harm to others."""
    answer_within: float = 1.0
    """L4: most seconds for nine of ten calls of the bystanders during one fault."""
    observing: tuple[str, ...] = ()
    """F: names of faults that write an Observed record each time that they fire."""
    doubling: tuple[str, ...] = ()
    """I13: names of faults under which a second process plays the same nodes: no excuse for both running a pod."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One change of one key in etcd. Records of one revision are together, and revisions are in order, with none left out."""

    tag: ClassVar[str] = "stored"
    at: float
    """When the recorder was told: it had happened by then."""
    revision: int
    key: str
    digest: str = ""
    """"": the key was deleted."""
    create_revision: int = 0
    """0 for a deletion; equal to `revision` for a creation."""
    lease: int = 0
    facts: Facts | None = None


@dataclass(frozen=True, slots=True)
class Compaction:
    tag: ClassVar[str] = "compaction"
    at: float
    revision: int


@dataclass(frozen=True, slots=True)
class Item:
    """What a call says of one object."""

    key: str
    revision: int = 0
    """The object's resourceVersion in the answer: of a write its own revision. 0: not told, or (get) it is not there."""
    uid: str = ""
    digest: str = ""
    """Of the object in the answer. "": the answer has no object."""
    outcome: Outcome = "ok"
    expected: int = 0
    """The resourceVersion on which the write was conditional; 0: on none."""
    code: str = ""
    """Of an item of a batch: name of its gRPC code unless it is OK. Else that of the call counts."""
    labels: str | None = None
    """What a create or update of a pod asks for, whatever it is answered: the `labels_digest`. None: it does not say."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one client that sent it once: clients of a history do not retry. A get that finds nothing is "ok" with the
    code NOT_FOUND and one item of revision 0. A batch has an item for each object; it is "ok" when an answer came."""

    tag: ClassVar[str] = "call"
    client: str
    id: int
    """Unique for the client."""
    server: str
    verb: Verb
    resource: str
    """Plural: "pods"."""
    began: float
    ended: float
    """Of an unknown outcome: when the client gave up."""
    outcome: Outcome = "ok"
    code: str = ""
    """Name of the gRPC code unless it is OK."""
    items: tuple[Item, ...] = ()
    snapshot: int = 0
    """Of a list: its resourceVersion."""
    prefix: str = ""
    """Of a list: what it asks for; "/registry/pods/" or "/registry/pods/<namespace>/"."""
    selection: str = ""
    """Of a list: its selector; "" for everything under the prefix."""
    of: int = 0
    """Of a list: the id of the call that fetched the first page; its own for the first."""
    more: bool = False
    """Of a list: there are further pages."""
    stale: bool = False
    """A read that asked for less than the latest state (a resourceVersion was given): later pages, too."""


@dataclass(frozen=True, slots=True)
class Told:
    """One word of a watch. A stream is one follower of one selection, across reconnections:

    began(0) added* synced(R)      the initial state, anew: whatever was known before is forgotten
    began(R) ...                   resumed after revision R
    relisted(R) (added | modified | deleted)* synced(R)   an informer's differences to what it knew
    added modified deleted         `revision` is the object's; its digest that of the object told (deleted: as it was last)
    bookmark(R)                    everything up to R has been told; also for a response whose revision is above its events'
    ended                          with its code
    """

    tag: ClassVar[str] = "told"
    client: str
    stream: str
    at: float
    kind: Word
    revision: int = 0
    key: str = ""
    """Of an object. Of began: the prefix that is watched."""
    digest: str = ""
    server: str = ""
    selection: str = ""
    """Of began: "" for everything under the prefix, "spec.nodeName=<node>", or else: only the order is checked."""
    code: str = ""
    """Of ended: name of the gRPC code."""


@dataclass(frozen=True, slots=True)
class Ran:
    tag: ClassVar[str] = "ran"
    at: float
    node: str
    uid: str
    key: str
    what: Literal["started", "stopped", "alive"]
    """started: a first container of the pod began to run. stopped: none does any more. alive: of no pod; the process is there,
    and says so every second."""
    process: str = ""
    """Whose word it is: a process has a name of its own each time that it is started."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Written when it begins (`ended` None) and again, with the same id, when it ends."""

    tag: ClassVar[str] = "fault"
    id: int
    name: str
    target: str
    began: float
    ended: float | None = None
    """None: still on."""
    fired: bool = True
    """False: it was due and could not be done (there was no such target)."""
    details: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """A figure that a fault read from its target (a metric, an exit code, a field of a JSON log), and the bounds for it."""

    tag: ClassVar[str] = "observed"
    at: float
    fault: int
    """The id of the Fault."""
    target: str
    what: str
    """The name of the figure: "apiserver_audit_lines_lost_total"."""
    value: float
    least: float | None = None
    most: float | None = None
    """None: no bound on this side."""


@dataclass(frozen=True, slots=True)
class Phase:
    tag: ClassVar[str] = "phase"
    at: float
    name: Literal["load", "quiet", "end"]
    """quiet: all faults are over, and nothing new is asked for. end: the run is judged by the state of now."""


Record = Run | Stored | Compaction | Call | Told | Ran | Fault | Observed | Phase


_RECORDS: dict[str, type[Any]] = {kind.tag: kind for kind in (Run, Stored, Compaction, Call, Told, Ran, Fault, Observed, Phase)}
_FACTS: dict[str, type[Any]] = {"pod": PodFacts, "node": NodeFacts, "election": ElectionFacts, "lease": LeaseFacts}
_FACT_TAGS = {kind: tag for tag, kind in _FACTS.items()}
_NAMES = tuple(field.name for field in fields(Run) if field.default == ())
"""Fields of Run that are tuples."""
_FIELDS = {
    kind: tuple((field.name, field.default) for field in fields(kind)) for kind in (*_RECORDS.values(), *_FACTS.values(), Item)
}
_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class HistoryError(Exception):
    """A file is not a history; the message says where."""


def encode(record: Record) -> str:
    """One line, with its end."""
    data = _told(record)
    if isinstance(record, Stored) and record.facts is not None:
        data["facts"] = {"t": _FACT_TAGS[type(record.facts)], **_told(record.facts)}
    elif isinstance(record, Call) and record.items:
        data["items"] = [_told(item) for item in record.items]
    return _dumps({"t": record.tag, **data}) + "\n"


def decode(line: str | bytes) -> Record:
    """Raises HistoryError."""
    try:
        data = json.loads(line)
    except ValueError:  # it would tell the line, which may be of any length, and of any bytes
        raise HistoryError("no record of a history: it is not JSON") from None
    try:
        kind = _RECORDS[data.pop("t")]
        if kind is Stored:
            data["facts"] = _facts(data.get("facts"))
        elif kind is Call:
            data["items"] = tuple(Item(**item) for item in data.get("items", ()))
        elif kind is Run:
            data |= {name: tuple(data.get(name, ())) for name in _NAMES}
        record: Record = kind(**data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryError(f"no record of a history: {error!r}") from None
    return record


def read(path: Path) -> Iterator[Record]:
    """A last line without an end was cut off by the death of its writer, and is left out. Raises HistoryError, OSError."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode(line)
            except HistoryError as error:
                raise HistoryError(f"{path}:{number}: {error}") from None


def is_cut_off(path: Path) -> bool:
    """Whether the last line has no end. Raises OSError."""
    with path.open("rb") as file:
        if not file.seek(0, SEEK_END):
            return False
        file.seek(-1, SEEK_END)
        return file.read() != b"\n"


def _told(record: Record | Item | Facts) -> dict[str, Any]:
    """The fields that do not have their default."""
    told = {}
    for name, default in _FIELDS[type(record)]:
        value = getattr(record, name)
        if default is MISSING or value != default:
            told[name] = value
    return told


def _facts(data: dict[str, Any] | None) -> Facts | None:
    if data is None:
        return None
    kind = _FACTS[data.pop("t")]
    for name in ("requests", "allocatable"):
        if name in data:
            data[name] = tuple((resource, amount) for resource, amount in data[name])
    if kind is ElectionFacts:
        data["scheduler_names"] = tuple(data.get("scheduler_names", ()))
    facts: Facts = kind(**data)
    return facts
