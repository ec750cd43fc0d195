"""Priority levels: the level of a call, and the order of calls within a level. Pure: no time, no futures.

Each level has a share of all seats, and lends the seats that it does not use. Names and shares are those of Kubernetes:

    level             calls                                                                                shares
    (exempt)          streams of requests of system:masters, such as heartbeats: no seats, no limit
    leader-election   Elections                                                                            10
    node-high         what keeps nodes alive: fleets' heartbeats, leases, nodes, and the status of pods    40
    system            other calls of fleets; schedulers and controllers                                    50
    workload          all other callers                                                                    100
    catch-all         calls about no resource: health, reflection, version                                 5

A flow is the calls of one user. The flows of a level share its seats by virtual time: a call that begins advances the clock of
its flow by its cost, and the flow with the lowest clock is next. No clock is below the clock of the level, so an idle flow
saves no turns. Between equal clocks, the flow whose call began longest ago is next.

For each four seats that a flow holds, it leaves one seat free (a dynamic threshold). One flow alone has four fifths of the
seats, two have four ninths each. A flow that holds nothing needs one free seat, whatever the cost of its call: wide calls do
not starve, they overdraw. Where the number of seats is not many times their cost, they get down to half as much as narrow
calls.

Sources: Start-time Fair Queueing, P. Goyal, H. Vin, H. Cheng, SIGCOMM 1996; Dynamic Queue Length Thresholds for Shared-Memory
Packet Switches, A. Choudhury, E. Hahne, IEEE/ACM Transactions on Networking 6(2), 1998;
https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#suggested-configuration-objects

The cost of a call, in seats: its work relative to a call about one object.

One create takes 1.1 ms of CPU, and each object of a batch of a hundred 0.07 to 0.11 ms (`pinnace bench create`). The cost of a
list follows from its limit and the number of objects: as in Kubernetes, one seat for each hundred objects, and at most ten. A
list tests the selector on every object, whatever the limit: to find none of 20,000 pods takes 40 ms of CPU, to show the first
thousand 3 ms. Lists that may read etcd (the past, later pages) cost three times as much (a page of 500 pods takes 18 ms of CPU
instead of 6). The cost of a patch follows from the size of the object: a patch of 55 bytes took 0.3 s on an object of 276 KB.

Large requests are parsed only when their call has its seats, whose number follows from the size in bytes. To parse 4 MB of
empty containers takes a sixth of a second, and the result needs 400 MB.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from google.protobuf.descriptor import MethodDescriptor

from apiserver.auth.authentication import MASTERS, NODES_GROUP, User
from apiserver.auth.permissions import ELECTIONS_GROUP, Action
from apiserver.flow.send_budget import SendBudget, SendPool
from pinnace.api.meta_v1_pb2 import ListOptions

LEADER_ELECTION, NODE_HIGH, SYSTEM, WORKLOAD = "leader-election", "node-high", "system", "workload"
CATCH_ALL = "catch-all"
SHARES: Mapping[str, int] = {LEADER_ELECTION: 10, NODE_HIGH: 40, SYSTEM: 50, WORKLOAD: 100, CATCH_ALL: 5}
"""The more important first."""


SEATS_PER_FREE_SEAT = 4
"""Seats that a flow may hold for each one that it leaves free."""
MAX_IDLE_FLOWS = 1000
"""Flows of a level that are remembered although they have no calls."""


class QueuedCall(Protocol):
    """Compared by identity."""

    @property
    def cost(self) -> int:
        """Seats that it takes."""
        ...

    @property
    def size(self) -> int:
        """Bytes of its request."""
        ...


CallT = TypeVar("CallT", bound=QueuedCall)


class Flow(Generic[CallT]):
    """`held`: seats that its calls have. `waiting`: its calls that have none, first in, first out, with `bytes` of requests.
    `budget`: what its user was told and has not taken yet. `returns`: when the last of those that were refused is to come
    back."""

    __slots__ = ("budget", "bytes", "clock", "held", "level", "returns", "user", "waiting")

    def __init__(self, level: "PriorityLevel[CallT]", user: str) -> None:
        self.level = level
        self.user = user
        self.held = 0
        self.budget = SendBudget(level.pool)
        self.waiting: OrderedDict[CallT, None] = OrderedDict()
        self.bytes = 0
        self.clock = level.clock
        self.returns = 0.0

    def fits(self, cost: int, free: int) -> bool:
        """May a call of this cost begin, when so many seats are free?"""
        held = self.held
        return free > 0 and (not held or held <= SEATS_PER_FREE_SEAT * (free - cost))

    def begin(self, cost: int) -> None:
        level = self.level
        self.held += cost
        level.held += cost
        level.calls += 1
        level.begun += 1
        if self.clock > level.clock:
            level.clock = self.clock
        self.clock = level.clock + cost
        if self.waiting:
            level.queued[self] = level.queued.pop(self)

    def end(self, cost: int) -> None:
        self.held -= cost
        self.level.held -= cost
        self.level.calls -= 1

    def push(self, call: CallT) -> None:
        self.waiting[call] = None
        self.bytes += call.size
        self.level.waiting += 1
        self.level.queued[self] = None

    def first(self) -> CallT:
        return next(iter(self.waiting))

    def drop(self, call: CallT) -> None:
        """It waits no longer."""
        del self.waiting[call]
        self.bytes -= call.size
        self.level.waiting -= 1
        if not self.level.waiting:
            self.level.passed = 0
        if not self.waiting:
            del self.level.queued[self]


class PriorityLevel(Generic[CallT]):
    """`seats`: its own. `held`: those that its calls have, which may be more: others lend it theirs. `calls`: how many have
    some now; `begun`: ever. `waiting`: how many have none; `passed`: how many of other levels went before the next of these.
    `queued`: the flows that these are of, at the end whose call began last. `room`: for what is told and not taken, of all
    levels."""

    def __init__(self, name: str, seats: int, pool: SendPool) -> None:
        self.name = name
        self.seats = seats
        self.pool = pool
        self.held = 0
        self.calls = 0
        self.begun = 0
        self.passed = 0
        self.waiting = 0
        self.clock = 0
        self.queued: dict[Flow[CallT], None] = {}
        self._flows: dict[str, Flow[CallT]] = {}

    def flow(self, user: str) -> Flow[CallT]:
        flow = self._flows.get(user)
        if flow is None:
            if len(self._flows) >= MAX_IDLE_FLOWS:
                self._flows = {
                    name: flow for name, flow in self._flows.items() if flow.held or flow.waiting or flow.budget.busy
                }
            flow = self._flows[user] = Flow(self, user)
        return flow

    def next(self, free: int) -> Flow[CallT] | None:
        """The flow whose first call is to begin; None: there is room for none."""
        chosen: Flow[CallT] | None = None
        for flow in self.queued:
            if (chosen is None or flow.clock < chosen.clock) and flow.fits(flow.first().cost, free):
                chosen = flow
        return chosen


_ALIVE = frozenset({"leases", "nodes", "nodes/status", "pods/status"})
_COMPONENTS = ("system:kube-", "system:controller:")
"""How the names of schedulers and controllers begin."""

Classifier = Callable[[User], str | None]
"""The level of somebody's calls of one method; None: they are exempt."""


def level_of(action: Action, *, pulse: bool) -> Classifier:
    """Of the method that needs this permission. `pulse`: requests are streamed, to keep alive whoever sends them."""

    def level(user: User) -> str | None:
        groups = user.groups
        if action.resource.startswith("/"):
            return CATCH_ALL
        if pulse and MASTERS in groups:
            return None
        if action.group == ELECTIONS_GROUP:
            return LEADER_ELECTION
        if NODES_GROUP in groups:
            return NODE_HIGH if action.resource in _ALIVE else SYSTEM
        return SYSTEM if user.name.startswith(_COMPONENTS) else WORKLOAD

    return level


ITEMS_PER_SEAT = 20
"""Of a batch, for a seat."""
LISTED_PER_SEAT = 100
MAX_LIST_COST = 10
STORAGE_FACTOR = 3
"""Times as many seats for what is read from the storage."""
TABLE_FACTOR = 4
"""Times as many more for what is printed: a page of 500 pods as a table took 42 ms of CPU instead of 8."""

PATCH_BYTES_PER_SEAT = 4 << 10
"""Bytes of a patch and of the object that it changes, for a seat: four times fewer than their CPU would say."""
MAX_PATCH_COST = 50
"""As a batch of a thousand: wider ones would keep others from their seats while etcd writes."""

MAX_DELETED = 1000
"""Of a collection, by one call."""

Cost = Callable[[Any], int]
"""Of a request."""


@runtime_checkable
class KnowsSizes(Protocol):
    """A service that can tell how large a stored object is."""

    def stored_size(self, request: Any) -> int:
        """Bytes of the object that a request names; 0: there is none."""
        ...


@runtime_checkable
class KnowsCounts(Protocol):
    """A service that can tell how many objects there are."""

    def stored_count(self, request: Any) -> int:
        """Objects of the collection that a request names, whichever of them it selects; 1 if it is to be one of that name."""
        ...


def cost_of(method: MethodDescriptor, service: object = None) -> Cost:
    size = service.stored_size if isinstance(service, KnowsSizes) else lambda request: 0
    count = service.stored_count if isinstance(service, KnowsCounts) else lambda request: sys.maxsize
    fields = method.input_type.fields_by_name
    if "items" in fields:
        return lambda request: cost_of_batch(len(request.items))
    if method.name == "List" and "options" in fields:
        printed = TABLE_FACTOR if "includeObject" in fields else 0
        return lambda request: _of_list(request.options, count(request), printed)
    if method.name == "DeleteCollection":
        return lambda request: _of_deletes(request.options, count(request))
    if method.name == "Patch":
        return lambda request: min(1 + (len(request.patch) + size(request)) // PATCH_BYTES_PER_SEAT, MAX_PATCH_COST)
    return lambda request: 1


def cost_of_batch(items: int) -> int:
    return 1 + items // ITEMS_PER_SEAT


def _most_deleted(limit: int) -> int:
    """By a call with this limit: the service reads all that is no limit as the largest."""
    return limit if 0 < limit < MAX_DELETED else MAX_DELETED


def _of_deletes(options: ListOptions, count: int) -> int:
    return max(1 + min(_most_deleted(options.limit), count) // ITEMS_PER_SEAT, _of_list(options, count, printed=0))


def _of_list(options: ListOptions, count: int, printed: int) -> int:
    """`count`: of the objects that there are now; how many there have been is not known."""
    past = options.resourceVersionMatch == "Exact" or bool(getattr(options, "continue"))
    there = sys.maxsize if past else count
    shown = min(options.limit, there) if options.limit > 0 else there
    looked_at = there if options.labelSelector or options.fieldSelector else shown
    return _listed(looked_at) * (STORAGE_FACTOR if past else 1) + _listed(shown) * printed


def _listed(objects: int) -> int:
    return max(1, min(-(-objects // LISTED_PER_SEAT), MAX_LIST_COST))


SMALL = 4 << 10
"""Bytes of a request that is read at once: that takes less than half a megabyte."""
BYTES_PER_SEAT = 32 << 10
"""Bytes of a larger one, for a seat."""
MAX_BYTES_COST = 90
"""So wide that a flow has one such call at work, and not two (apiserver.flow.levels)."""
MAX_VARINT_BYTES = 5
"""Bytes of a number that is a length, or begins a field."""
SECONDS_PER_BYTE = 50e-9
"""Seconds that a byte may take to be read, in which nobody else has a turn."""


class LazyRequest(NamedTuple):
    """What has come."""

    data: bytes

    def ByteSize(self) -> int:  # noqa: N802 (protobuf's name)
        """As a message's."""
        return len(self.data)


def items_in(data: bytes, number: int, most: int) -> int:
    """How often a message has the field with this number, which holds messages, among its first `most` fields: so hostile ones
    take no longer. What does not look like a message has no more.

    Source: https://protobuf.dev/programming-guides/encoding/
    """
    tag, at, found = number << 3 | 2, 0, 0
    try:
        for _ in range(most):
            key, at = _varint(data, at)
            if key & 7 != 2:
                break
            size, at = _varint(data, at)
            at += size
            found += key == tag
    except IndexError:
        pass
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it has ended. Raises IndexError when it does not end in time."""
    value = 0
    for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError


def cost_of_bytes(size: int) -> int:
    """Seats for a request of so many bytes, whatever is in it."""
    return min(1 + size // BYTES_PER_SEAT, MAX_BYTES_COST)
