"""The records of a run. A history is the only input of the checkers.

    Stored, Compaction   etcd's changes, from a watch since revision 1 that bypasses the API server
    Call, Told           each call of the clients with its start and end, and each event of their watches
    Ran                  the pods that the kubelets ran
    Fault, Phase         the injected faults, and the phases of the run
    Observed             measurements during a fault
    ProcessState         the processes that ended, froze and started; timelines show them, and no checker uses them
    Run                  the parameters of the run: the first record

All times are seconds of CLOCK_MONOTONIC (`time.monotonic()`), comparable between the processes of a machine, except for
`Run.started`. `key` is an etcd key ("/registry/pods/default/x"). Records of different sources can be interleaved in any order.
Records of one source (etcd, one watch stream, one kubelet) are in order of time.

A history file contains one JSON object per record and line. "t" is the type of the record. Fields with their default value are
omitted. Objects are reduced to facts: the parts that checkers need.
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
from pinnace.api.core_v1_pb2 import Event, Node, Pod
from pinnace.api.elections_pb2 import Candidate, Election, Term
from pinnace.api.meta_v1_pb2 import MicroTime, ObjectMeta
from pinnace.api.pods import ENDED
from pinnace.api.resources import (
    ALL,
    CANDIDATES_PREFIX,
    ELECTIONS_PREFIX,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    TERMS_PREFIX,
    Object,
    prefix_of,
)
from pinnace.fit import allocatable_amounts, pod_requests

Amounts = tuple[tuple[str, int], ...]
"""Pairs of resource and amount: millicores of cpu, bytes, or a count; see pinnace.fit."""

UNSCHEDULABLE = f"{wellknown.UNSCHEDULABLE_TAINT}:NoSchedule"
"""The taint of a cordoned node."""
_MESSAGES: dict[str, type[Any]] = {resource.prefix: resource.message for resource in ALL}
VERSION = 2
"""The version of the format. Since version 2, elections contain the schedulers whose pods their holders bind."""
Outcome = Literal["ok", "refused", "unknown"]
"""refused: the write did not happen. unknown: the response was lost, and the write may have happened or may still happen."""
Verb = Literal["create", "get", "list", "update", "update_status", "delete", "bind"]
Word = Literal["began", "added", "modified", "deleted", "bookmark", "relisted", "synced", "ended"]
_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True, slots=True)
class PodFacts:
    uid: str
    node: str = ""
    """spec.nodeName, or "" if the pod is not bound."""
    election: str = ""
    """The election whose leader bound the pod, or "" if the pod is not bound or was bound without a fence."""
    token: int = 0
    """The fencing token of the bind."""
    phase: str = ""
    requests: Amounts = ()
    started: int = 0
    """status.startTime in Unix seconds, at which a kubelet accepted the pod, or 0."""
    terminating: bool = False
    labels: str = ""
    """The `labels_digest` of the labels."""
    picky: bool = False
    """Whether the pod has constraints other than resources (selectors, affinity, host ports, another scheduler). The
    feasibility of such a pod is not checked."""
    scheduler: str = wellknown.DEFAULT_SCHEDULER
    """spec.schedulerName."""
    owner: str = ""
    """The controller, for example "ReplicaSet/web-5d9c", or "". Only timelines use it."""
    disruption: str = ""
    """The reason of the condition DisruptionTarget, for example "DeletionByTaintManager", or "". Only timelines use it."""
    changed: int = 0
    """The time of the last change of the pod's state in Unix seconds. Only timelines use it."""

    @property
    def bound_by_scheduler(self) -> bool:
        return bool(self.election)

    @property
    def finished(self) -> bool:
        return self.phase in ENDED


@dataclass(frozen=True, slots=True)
class NodeFacts:
    uid: str
    allocatable: Amounts = ()
    open: bool = True
    """Whether the node is neither cordoned nor tainted with NoSchedule or NoExecute."""
    ready: bool = True
    """Whether the condition Ready is True."""
    zone: str = ""
    taints: tuple[str, ...] = ()
    """The taints as "key=value:effect". A cordoned node has node.kubernetes.io/unschedulable. Only timelines use it."""


@dataclass(frozen=True, slots=True)
class ElectionFacts:
    holder: str
    session: int = 0
    """The etcd lease of the holder's session."""
    scheduler_names: tuple[str, ...] = ()
    """The schedulers whose pods the holder is allowed to bind."""
    began: float = 0.0
    """The begin of the term in Unix seconds, by the clock of an API server; 0 if it is unknown."""


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    holder: str


@dataclass(frozen=True, slots=True)
class TermFacts:
    """A term that is over, as the API server recorded it after its end. Times are Unix seconds."""

    holder: str
    began: float
    ended: float
    reason: str = ""
    presumed: bool = False
    """See Term in proto/."""
    heartbeat: float = 0.0
    """The last heartbeat of a leader that did not act until the end; 0 otherwise."""


@dataclass(frozen=True, slots=True)
class CandidateFacts:
    holder: str


@dataclass(frozen=True, slots=True)
class FencedFacts:
    """The event with which a scheduler reports that the fence refused its writes."""

    reporter: str
    message: str
    token: int = 0
    """The token of the refused writes."""
    count: int = 0
    """The number of refused writes; 0 in histories of earlier versions."""


Facts = PodFacts | NodeFacts | ElectionFacts | LeaseFacts | TermFacts | CandidateFacts | FencedFacts


def object_digest(obj: Message | Object) -> str:
    """Return 16 hex digits that are equal for equal objects, independent of the order of maps, the resourceVersion and the
    owners of fields: some clients see owners, others do not."""
    message: Any = obj
    metadata = message.metadata
    ignored = ObjectMeta(
        resourceVersion=metadata.resourceVersion, managedFields=metadata.managedFields, ownership=metadata.ownership
    )
    for field in ("resourceVersion", "managedFields", "ownership"):
        metadata.ClearField(field)
    try:
        return _hash_bytes(message.SerializeToString(deterministic=True))
    finally:
        metadata.MergeFrom(ignored)


def labels_digest(labels: Mapping[str, str]) -> str:
    """Return 16 hex digits that are equal for equal labels, or "" without labels."""
    return _hash_bytes(repr(sorted(labels.items())).encode()) if labels else ""


def digest_of(key: str, value: bytes | None) -> str:
    """Return the `object_digest` of a value in etcd, or a hash of its bytes if it is no object; "" for a deletion (None)."""
    if value is None:
        return ""
    message = _MESSAGES.get(prefix_of(key))
    return object_digest(message.FromString(value)) if message else _hash_bytes(value)


def decode_facts(key: str, value: bytes | None) -> Facts | None:
    """Return the facts of a value in etcd, or None for a deletion and for kinds that no checker uses."""
    if not value:
        return None
    if key.startswith(PODS.prefix):
        return pod_facts(Pod.FromString(value))
    if key.startswith(NODES.prefix):
        return node_facts(Node.FromString(value))
    if key.startswith(ELECTIONS_PREFIX):
        election = Election.FromString(value)
        began = _unix_seconds(election.since) if election.HasField("since") else 0.0
        return ElectionFacts(election.holder, election.session, tuple(election.scheduler_names), began)
    if key.startswith(LEASES.prefix):
        return LeaseFacts(Lease.FromString(value).spec.holderIdentity)
    if key.startswith(TERMS_PREFIX):
        term = Term.FromString(value)
        ended = _unix_seconds(term.ended) if term.HasField("ended") else 0.0
        heartbeat = _unix_seconds(term.last_heartbeat) if term.HasField("last_heartbeat") else 0.0
        return (
            TermFacts(term.holder, _unix_seconds(term.began), ended, term.reason, term.presumed, heartbeat) if ended else None
        )
    if key.startswith(CANDIDATES_PREFIX):
        return CandidateFacts(Candidate.FromString(value).holder)
    if key.startswith(EVENTS.prefix) and b"Fenced" in value:
        event = Event.FromString(value)
        if event.reason == "Fenced":
            return FencedFacts(event.reportingInstance, event.message, fences.refused_token(event.message), event.count)
        return None
    return None


def _unix_seconds(time: MicroTime) -> float:
    return time.seconds + time.nanos / 1e9


def pod_facts(pod: Pod) -> PodFacts:
    metadata, spec = pod.metadata, pod.spec
    fence = fences.fence_of(pod)
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
        owner=next((f"{owner.kind}/{owner.name}" for owner in metadata.ownerReferences if owner.controller), ""),
        disruption=_disruption_reason(pod),
        changed=max(
            metadata.creationTimestamp.seconds,
            *(condition.lastTransitionTime.seconds for condition in pod.status.conditions),
            0,
        ),
    )


def _disruption_reason(pod: Pod) -> str:
    conditions = pod.status.conditions
    return next(
        (
            condition.reason
            for condition in conditions
            if condition.type == wellknown.DISRUPTION_TARGET and condition.status == "True"
        ),
        "",
    )


def node_facts(node: Node) -> NodeFacts:
    is_open = not node.spec.unschedulable and not any(t.effect in ("NoSchedule", "NoExecute") for t in node.spec.taints)
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    zone = node.metadata.labels.get(wellknown.ZONE_LABEL, "")
    taints = [f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}" for taint in node.spec.taints]
    if node.spec.unschedulable and UNSCHEDULABLE not in taints:
        taints.append(UNSCHEDULABLE)
    return NodeFacts(node.metadata.uid, tuple(sorted(allocatable_amounts(node).items())), is_open, ready, zone, tuple(taints))


def _hash_bytes(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class RunInfo:
    tag: ClassVar[str] = "run"
    started: float
    """Unix seconds."""
    seed: int = 0
    what: str = ""
    """A description of the run, for example the command or the scenario."""
    version: int = VERSION
    faults: tuple[str, ...] = ()
    """Names of the faults that must fire. If one of them does not fire, the run is void."""
    private: tuple[str, ...] = ()
    """Prefixes of keys that only recorded calls write. A recorded call must explain each change of these keys."""
    fenced: tuple[str, ...] = ()
    """I3: key prefixes of the pods that are only bound with a fence."""
    settle: float = 60.0
    """L1: seconds after the last fault within which each feasible pod must be bound and Running."""
    elections: tuple[str, ...] = ()
    """L2: elections that have candidates when the load begins, and must have a leader soon afterwards."""
    unsteady: tuple[str, ...] = ()
    """L2: elections that are not checked, because their holders resign at any time."""
    leaderless: float = 10.0
    """L2: the maximum number of seconds without a leader, excluding time covered by faults."""
    aftermath: float = 3.0
    """L2: seconds after the end of a fault in which it can still move leadership: the lease timeout plus a margin."""
    harmless: tuple[str, ...] = ()
    """L2: faults that neither move nor delay leadership, even in combination."""
    bearable: tuple[str, ...] = ()
    """L2: faults that do not move leadership if no other fault is active."""
    freezing: tuple[str, ...] = ()
    """L2: faults that freeze their target, which is the holder of an election."""
    tolerated: tuple[str, ...] = ()
    """L3, L4: faults that do not excuse delays."""
    bind_within: float = 10.0
    """L3: the maximum number of seconds in which pods wait and no pod is bound, excluding time covered by other faults."""
    bystanders: tuple[str, ...] = ()
    """L4: clients whose calls must receive timely responses while a hostile fault is active."""
    hostile: tuple[str, ...] = ()
    """L4: faults in which one user overloads the servers."""
    answer_within: float = 1.0
    """L4: the maximum 90th percentile of the latency of bystanders' calls during a fault, in seconds."""
    gateway_bystanders: tuple[str, ...] = ()
    """L5: clients of gateways whose calls must receive timely responses while a gateway is attacked."""
    attacks: tuple[str, ...] = ()
    """L5: faults in which one user of a gateway overloads it."""
    gateway_answers_within: float = 0.25
    """L5: the maximum 99th percentile of the latency of these calls during an attack, in seconds."""
    observing: tuple[str, ...] = ()
    """F: faults that must write an Observed record each time they fire."""
    doubling: tuple[str, ...] = ()
    """I13: faults that start a second process for the same nodes. They do not excuse a pod that runs in both processes."""
    judged: tuple[str, ...] = ()
    """The names of the invariants that the run is made for. () means all."""
    bug: str = ""
    """The name of the bug that was planted in the code of the run, or ""."""
    at: float = 0.0
    """The monotonic time of `started`; 0 if it is unknown."""


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A change of a key in etcd. Records are in order of revision, without gaps."""

    tag: ClassVar[str] = "stored"
    at: float
    """The time at which the recorder received the change."""
    revision: int
    key: str
    digest: str = ""
    """The `digest` of the object, or "" if the key was deleted."""
    create_revision: int = 0
    """0 for a deletion. Equal to `revision` for a creation."""
    lease: int = 0
    facts: Facts | None = None
    value: str = ""
    """The object in base64, in recordings from which decisions are computed. Checkers do not use it."""


@dataclass(frozen=True, slots=True)
class Compaction:
    tag: ClassVar[str] = "compaction"
    at: float
    revision: int


@dataclass(frozen=True, slots=True)
class CallItem:
    """The part of a call that concerns one object."""

    key: str
    revision: int = 0
    """The object's resourceVersion in the response; for a write, its own revision. 0 if the response contains none, or a get
    found nothing."""
    uid: str = ""
    digest: str = ""
    """The digest of the object in the response, or "" if it contains no object."""
    outcome: Outcome = "ok"
    expected: int = 0
    """The resourceVersion that the write required, or 0 if it was unconditional."""
    code: str = ""
    """The name of the gRPC code of a failed item of a batch. Otherwise the code of the call applies."""
    labels: str | None = None
    """The `labels_digest` in the request of a pod's create or update, independent of the response. None if it is not
    recorded."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a client, sent once: the clients of a history do not retry. A get that finds nothing is "ok" with the code
    NOT_FOUND and one item of revision 0. A batch has one item per object, and is "ok" if a response was received."""

    tag: ClassVar[str] = "call"
    client: str
    id: int
    """Unique within the client."""
    server: str
    verb: Verb
    resource: str
    """The plural name, for example "pods"."""
    began: float
    ended: float
    """The time of the response. For an unknown outcome, the time at which the client stopped waiting."""
    outcome: Outcome = "ok"
    code: str = ""
    """The name of the gRPC code, or "" for OK."""
    items: tuple[CallItem, ...] = ()
    snapshot: int = 0
    """For a list: the resourceVersion."""
    prefix: str = ""
    """For a list: the requested prefix, "/registry/pods/" or "/registry/pods/<namespace>/"."""
    selection: str = ""
    """For a list: the selector. "" selects all keys under the prefix."""
    of: int = 0
    """For a list: the ID of the call that fetched the first page."""
    more: bool = False
    """For a list: whether more pages follow."""
    stale: bool = False
    """Whether the read permits stale data (it specifies a resourceVersion). Also set for the following pages."""


@dataclass(frozen=True, slots=True)
class WatchMessage:
    """A message of a watch. A stream is one watcher of one selection, across reconnections:

    began(0) added* synced(R)      the initial state, which replaces everything that was received before
    began(R) ...                   resumed after revision R
    relisted(R) (added | modified | deleted)* synced(R)   the differences between a new list and an informer's store
    added modified deleted         `revision`: of the object; `digest`: of the received object (for deleted, its last version)
    bookmark(R)                    all events up to R have been sent; also for a response with a higher revision than its events
    ended                          with `code`
    """

    tag: ClassVar[str] = "told"
    client: str
    stream: str
    at: float
    kind: Word
    revision: int = 0
    key: str = ""
    """The key of the object. For began, the watched prefix."""
    digest: str = ""
    server: str = ""
    selection: str = ""
    """For began: the selector. "" selects all keys under the prefix. For selectors other than "spec.nodeName=<node>", only the
    order of events is checked."""
    code: str = ""
    """For ended: the name of the gRPC code."""


@dataclass(frozen=True, slots=True)
class ContainerRun:
    tag: ClassVar[str] = "ran"
    at: float
    node: str
    uid: str
    key: str
    what: Literal["started", "stopped", "alive"]
    """started: the first container of the pod started. stopped: its last container stopped. alive: written every second by each
    live process; does not concern a pod."""
    process: str = ""
    """The process that wrote the record. A process has a new name after each start."""


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """Written when the fault begins (`ended` is None), and again with the same ID when it ends."""

    tag: ClassVar[str] = "fault"
    id: int
    name: str
    target: str
    began: float
    ended: float | None = None
    """None if the fault is active."""
    fired: bool = True
    """False if the fault was due but could not be injected, for example because it had no target."""
    details: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """A value that a fault read from its target (a metric, an exit code, a field of a JSON log), with its limits."""

    tag: ClassVar[str] = "observed"
    at: float
    fault: int
    """The ID of the Fault."""
    target: str
    what: str
    """The name of the value, for example "apiserver_audit_lines_lost_total"."""
    value: float
    least: float | None = None
    most: float | None = None
    """The limits of the value. None means no limit."""


@dataclass(frozen=True, slots=True)
class RunPhase:
    tag: ClassVar[str] = "phase"
    at: float
    name: Literal["load", "quiet", "end"]
    """quiet: all faults have ended and the load has stopped. end: the state at this time is checked."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of a process of the cluster: the first one, and each change."""

    tag: ClassVar[str] = "process"
    at: float
    name: str
    state: str
    """up, down, or frozen (SIGSTOP)."""


Record = (
    RunInfo
    | StoredChange
    | Compaction
    | CallRecord
    | WatchMessage
    | ContainerRun
    | FaultRecord
    | Observation
    | RunPhase
    | ProcessState
)


_KINDS = (
    RunInfo,
    StoredChange,
    Compaction,
    CallRecord,
    WatchMessage,
    ContainerRun,
    FaultRecord,
    Observation,
    RunPhase,
    ProcessState,
)
_RECORDS: dict[str, type[Any]] = {kind.tag: kind for kind in _KINDS}
_FACTS: dict[str, type[Any]] = {
    "pod": PodFacts,
    "node": NodeFacts,
    "election": ElectionFacts,
    "lease": LeaseFacts,
    "term": TermFacts,
    "candidate": CandidateFacts,
    "fenced": FencedFacts,
}
_FACT_TAGS = {kind: tag for tag, kind in _FACTS.items()}
_NAMES = tuple(field.name for field in fields(RunInfo) if field.default == ())
"""The names of the tuple fields of Run."""
_FIELDS = {
    kind: tuple((field.name, field.default) for field in fields(kind))
    for kind in (*_RECORDS.values(), *_FACTS.values(), CallItem)
}


class HistoryError(Exception):
    """A file is not a valid history. The message contains the position of the error."""


def encode_record(record: Record) -> str:
    """Encode a record as one line with a newline."""
    data = _set_fields(record)
    if isinstance(record, StoredChange) and record.facts is not None:
        data["facts"] = {"t": _FACT_TAGS[type(record.facts)], **_set_fields(record.facts)}
    elif isinstance(record, CallRecord) and record.items:
        data["items"] = [_set_fields(item) for item in record.items]
    return _dumps({"t": record.tag, **data}) + "\n"


def decode_record(line: str | bytes) -> Record:
    """Decode a line. Raises HistoryError."""
    try:
        data = json.loads(line)
    except ValueError:  # the message would contain the whole line
        raise HistoryError("not a record of a history: invalid JSON") from None
    try:
        kind = _RECORDS[data.pop("t")]
        if kind is StoredChange:
            data["facts"] = _facts_from_json(data.get("facts"))
        elif kind is CallRecord:
            data["items"] = tuple(CallItem(**item) for item in data.get("items", ()))
        elif kind is RunInfo:
            data |= {name: tuple(data.get(name, ())) for name in _NAMES}
        record: Record = kind(**data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryError(f"not a record of a history: {error!r}") from None
    return record


def read_history(path: Path) -> Iterator[Record]:
    """Yield the records of a file. An incomplete last line is ignored, because its writer was killed. Raises HistoryError and
    OSError."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode_record(line)
            except HistoryError as error:
                raise HistoryError(f"{path}:{number}: {error}") from None


def is_truncated(path: Path) -> bool:
    """Return whether the last line has no newline. Raises OSError."""
    with path.open("rb") as file:
        if not file.seek(0, SEEK_END):
            return False
        file.seek(-1, SEEK_END)
        return file.read() != b"\n"


def _set_fields(record: Record | CallItem | Facts) -> dict[str, Any]:
    """Return the fields that differ from their default."""
    told = {}
    for name, default in _FIELDS[type(record)]:
        value = getattr(record, name)
        if default is MISSING or value != default:
            told[name] = value
    return told


def _facts_from_json(data: dict[str, Any] | None) -> Facts | None:
    if data is None:
        return None
    kind = _FACTS[data.pop("t")]
    for name in ("requests", "allocatable"):
        if name in data:
            data[name] = tuple((resource, amount) for resource, amount in data[name])
    for name in ("scheduler_names", "taints"):
        if name in data:
            data[name] = tuple(data[name])
    facts: Facts = kind(**data)
    return facts
