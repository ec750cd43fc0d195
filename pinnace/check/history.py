"""A history: what happened in a run, as records. Checkers read nothing else.

    Stored, Compaction   what etcd says, from a watch since revision 1 that does not pass through the API server
    Call, Told           what clients saw: every call with its start and end, every word of every watch
    Ran                  what kubelets say that they ran
    Fault, Phase         what was done to the cluster, and when
    Observed             what a fault measured while it was on
    Run                  what the run was: the first record

All times are seconds of CLOCK_MONOTONIC (`time.monotonic()`), comparable between the processes of one machine, but for
`Run.started`. `key` is always etcd's ("/registry/pods/default/x"). Records of several sources may be mixed in any order, but
those of one source (etcd; one watch stream; one kubelet) are in the order in which they happened.
In a file a record is a JSON object on a line of its own; "t" names its kind, and fields that have their default are left out.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pinnace.check.facts import Facts

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
