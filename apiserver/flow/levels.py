"""Priority levels: the level of a call, its cost in seats, and the order of calls within a level. This module does no I/O.

Each level has a share of all seats, and lends unused seats. Names and shares are those of Kubernetes:

    level             calls                                                                            shares
    (exempt)          request streams of system:masters, such as heartbeats: not limited
    leader-election   Elections                                                                        10
    node-high         heartbeats, leases and nodes of fleets, and the status of pods                   40
    system            other calls of fleets; schedulers and controllers                                50
    workload          all other users                                                                  100
    catch-all         non-resource calls: health, reflection, version                                  5

A flow contains the calls of one user. The flows of a level share its seats by virtual time: a call that starts advances the
clock of its flow by its cost, and the flow with the lowest clock is next. The clock of a flow is never below the clock of the
level, so an idle flow does not accumulate credit. Between equal clocks, the flow that waits longest since its last start is
next.

A flow must leave one seat free for every four seats that it holds (a dynamic threshold). A single flow can use four fifths of
the seats, and two flows four ninths each. A flow without seats needs only one free seat, whatever the cost of its call. So
expensive calls do not starve, but can exceed the number of seats. If the number of seats is not much larger than their cost,
flows with expensive calls receive as little as half of their share.

Sources: Start-time Fair Queueing, P. Goyal, H. Vin, H. Cheng, SIGCOMM 1996; Dynamic Queue Length Thresholds for Shared-Memory
Packet Switches, A. Choudhury, E. Hahne, IEEE/ACM Transactions on Networking 6(2), 1998;
https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#suggested-configuration-objects

The cost of a call is its number of seats: its CPU time relative to a single-object call. One create takes 1.1 ms of CPU time,
and each object of a batch of 100 takes 0.07 to 0.11 ms (`pinnace bench create`). The cost of a list depends on its limit and
the number of objects: as in Kubernetes, one seat per 100 objects, and at most ten. A selector is matched against every object,
whatever the limit: a list without matches among 20,000 pods takes 40 ms, and a list of the first 1,000 pods takes 3 ms. Lists
that can read etcd (past revisions, later pages) cost three times as much (a page of 500 pods takes 18 ms instead of 6 ms). The
cost of a patch depends on the size of the object: a patch of 55 bytes took 0.3 s on an object of 276 KB.

Large requests are parsed after their call has received its seats, whose number depends on the size in bytes. Parsing 4 MB of
empty containers takes 170 ms, and the result uses 400 MB.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from google.protobuf.descriptor import MethodDescriptor

from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.apiserver.auth.authentication import MASTERS, NODES_GROUP, User
from pinnace.apiserver.auth.permissions import ELECTIONS_GROUP, ResourceAction
from pinnace.apiserver.flow.send_budget import SendBudget, SendPool

LEADER_ELECTION, NODE_HIGH, SYSTEM, WORKLOAD = "leader-election", "node-high", "system", "workload"
CATCH_ALL = "catch-all"
SHARES: Mapping[str, int] = {LEADER_ELECTION: 10, NODE_HIGH: 40, SYSTEM: 50, WORKLOAD: 100, CATCH_ALL: 5}
"""Shares by level, in order of priority."""


SEATS_PER_FREE_SEAT = 4
"""The number of seats that a flow can hold for each free seat."""
MAX_IDLE_FLOWS = 1000
"""The number of flows of a level above which idle flows are removed."""

_ALIVE = frozenset({"leases", "nodes", "nodes/status", "pods/status"})
_COMPONENTS = ("system:kube-", "system:controller:")
"""Prefixes of the user names of schedulers and controllers."""

Classifier = Callable[[User], str | None]
"""Returns the level of a user's calls of one method; None if they are exempt."""

ITEMS_PER_SEAT = 20
"""The number of items of a batch per seat."""
LISTED_PER_SEAT = 100
MAX_LIST_COST = 10
STORAGE_FACTOR = 3
"""The cost of a list that reads the storage, relative to one that reads the cache."""
TABLE_FACTOR = 4
"""The additional cost of a table, relative to a list: a page of 500 pods took 42 ms of CPU time as a table, instead of 8 ms."""

PATCH_BYTES_PER_SEAT = 4 << 10
"""Bytes of a patch and its object per seat. By CPU time alone, the number would be four times as high."""
MAX_PATCH_COST = 50
"""The cost of a batch of 1,000 items. Higher costs would block other calls while etcd writes."""

MAX_DELETED = 1000
"""Maximum number of objects that one call of DeleteCollection deletes."""

Cost = Callable[[Any], int]
"""Returns the cost of a request."""

SMALL = 4 << 10
"""Maximum size in bytes of a request that is parsed immediately. The parsed message uses less than 500 KB."""
BYTES_PER_SEAT = 32 << 10
"""Bytes of a larger request per seat."""
MAX_BYTES_COST = 90
"""The maximum cost of a large request. With this cost, a flow executes one such call at a time."""
MAX_VARINT_BYTES = 5
"""Maximum size in bytes of a field's tag or length."""
SECONDS_PER_BYTE = 50e-9
"""Maximum seconds per byte to parse a request. Parsing blocks the event loop."""


class QueuedCall(Protocol):
    """A waiting call. Calls are compared by identity."""

    @property
    def cost(self) -> int:
        """The number of seats."""
        ...

    @property
    def size(self) -> int:
        """The size of the request in bytes."""
        ...


CallT = TypeVar("CallT", bound=QueuedCall)


class UserFlow(Generic[CallT]):
    """The calls of one user in a level. `seats_in_use` is the number of seats in use. `waiting` contains the waiting calls
    (FIFO), and `bytes` is the size of their requests. `budget` is the send budget. `next_retry` is the time of the last
    scheduled retry of refused calls."""

    __slots__ = ("budget", "bytes", "clock", "level", "next_retry", "seats_in_use", "user", "waiting")

    def __init__(self, level: "PriorityLevel[CallT]", user: str) -> None:
        self.level = level
        self.user = user
        self.seats_in_use = 0
        self.budget = SendBudget(level.pool)
        self.waiting: OrderedDict[CallT, None] = OrderedDict()
        self.bytes = 0
        self.clock = level.clock
        self.next_retry = 0.0

    def can_dispatch(self, cost: int, free: int) -> bool:
        """Report whether a call with this cost can start while `free` seats are free."""
        seats_in_use = self.seats_in_use
        return free > 0 and (not seats_in_use or seats_in_use <= SEATS_PER_FREE_SEAT * (free - cost))

    def start_call(self, cost: int) -> None:
        level = self.level
        self.seats_in_use += cost
        level.seats_in_use += cost
        level.calls += 1
        level.started_calls += 1
        if self.clock > level.clock:
            level.clock = self.clock
        self.clock = level.clock + cost
        if self.waiting:
            level.queued[self] = level.queued.pop(self)

    def finish_call(self, cost: int) -> None:
        self.seats_in_use -= cost
        self.level.seats_in_use -= cost
        self.level.calls -= 1

    def enqueue_call(self, call: CallT) -> None:
        self.waiting[call] = None
        self.bytes += call.size
        self.level.waiting += 1
        self.level.queued[self] = None

    def first_call(self) -> CallT:
        return next(iter(self.waiting))

    def remove_call(self, call: CallT) -> None:
        """Remove a call from the queue."""
        del self.waiting[call]
        self.bytes -= call.size
        self.level.waiting -= 1
        if not self.level.waiting:
            self.level.overtaken = 0
        if not self.waiting:
            del self.level.queued[self]


class PriorityLevel(Generic[CallT]):
    """A priority level. `seats` is its number of seats. `seats_in_use` is the number of seats in use, including borrowed ones.
    `calls` is the number of executing calls, and `started_calls` the number of all started calls. `waiting` is the number of
    waiting calls, and `overtaken` the number of calls of other levels that have overtaken the next one. `queued` contains the
    flows with waiting calls, sorted by their last start. `pool` is the send pool of all levels."""

    def __init__(self, name: str, seats: int, pool: SendPool) -> None:
        self.name = name
        self.seats = seats
        self.pool = pool
        self.seats_in_use = 0
        self.calls = 0
        self.started_calls = 0
        self.overtaken = 0
        self.waiting = 0
        self.clock = 0
        self.queued: dict[UserFlow[CallT], None] = {}
        self._flows: dict[str, UserFlow[CallT]] = {}

    def flow(self, user: str) -> UserFlow[CallT]:
        flow = self._flows.get(user)
        if flow is None:
            if len(self._flows) >= MAX_IDLE_FLOWS:
                self._flows = {
                    name: flow
                    for name, flow in self._flows.items()
                    if flow.seats_in_use or flow.waiting or flow.budget.is_in_use
                }
            flow = self._flows[user] = UserFlow(self, user)
        return flow

    def next_flow(self, free: int) -> UserFlow[CallT] | None:
        """Return the flow whose first call starts next; None if no call can start."""
        chosen: UserFlow[CallT] | None = None
        for flow in self.queued:
            if (chosen is None or flow.clock < chosen.clock) and flow.can_dispatch(flow.first_call().cost, free):
                chosen = flow
        return chosen


def level_classifier(action: ResourceAction, *, pulse: bool) -> Classifier:
    """Return the classifier of a method with this permission. `pulse`: the method is a request stream that keeps its client
    alive, such as heartbeats."""

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


@runtime_checkable
class HasStoredSizes(Protocol):
    """A service that reports the sizes of stored objects."""

    def stored_size(self, request: Any) -> int:
        """Return the size in bytes of the object that the request names; 0 if it does not exist."""
        ...


@runtime_checkable
class HasStoredCounts(Protocol):
    """A service that reports the number of stored objects."""

    def stored_count(self, request: Any) -> int:
        """Return the number of objects of the requested collection before selection; 1 if the request is limited to one
        name."""
        ...


def cost_function(method: MethodDescriptor, service: object = None) -> Cost:
    """Return the cost function of a method."""
    size = service.stored_size if isinstance(service, HasStoredSizes) else lambda request: 0
    count = service.stored_count if isinstance(service, HasStoredCounts) else lambda request: sys.maxsize
    fields = method.input_type.fields_by_name
    if "items" in fields:
        return lambda request: cost_of_batch(len(request.items))
    if method.name == "List" and "options" in fields:
        printed = TABLE_FACTOR if "includeObject" in fields else 0
        return lambda request: _cost_of_list(request.options, count(request), printed)
    if method.name == "DeleteCollection":
        return lambda request: _cost_of_deletes(request.options, count(request))
    if method.name == "Patch":
        return lambda request: min(1 + (len(request.patch) + size(request)) // PATCH_BYTES_PER_SEAT, MAX_PATCH_COST)
    return lambda request: 1


def cost_of_batch(items: int) -> int:
    return 1 + items // ITEMS_PER_SEAT


def _max_deleted(limit: int) -> int:
    """Return the maximum number of objects that a call with this limit deletes."""
    return limit if 0 < limit < MAX_DELETED else MAX_DELETED


def _cost_of_deletes(options: ListOptions, count: int) -> int:
    return max(1 + min(_max_deleted(options.limit), count) // ITEMS_PER_SEAT, _cost_of_list(options, count, printed=0))


def _cost_of_list(options: ListOptions, count: int, printed: int) -> int:
    """Return the cost of a list. `count` is the current number of objects. The number at a past revision is unknown."""
    past = options.resourceVersionMatch == "Exact" or bool(getattr(options, "continue"))
    there = sys.maxsize if past else count
    shown = min(options.limit, there) if options.limit > 0 else there
    looked_at = there if options.labelSelector or options.fieldSelector else shown
    return _seats_of_list(looked_at) * (STORAGE_FACTOR if past else 1) + _seats_of_list(shown) * printed


def _seats_of_list(objects: int) -> int:
    return max(1, min(-(-objects // LISTED_PER_SEAT), MAX_LIST_COST))


class LazyRequest(NamedTuple):
    """The bytes of an unparsed request."""

    data: bytes

    def ByteSize(self) -> int:  # noqa: N802 (protobuf's name)
        return len(self.data)


def count_encoded_items(data: bytes, number: int, most: int) -> int:
    """Return the number of occurrences of a message field among the first `most` fields of an encoded message. The limit bounds
    the time for malicious requests. At the first invalid field, counting ends.

    Source: https://protobuf.dev/programming-guides/encoding/
    """
    tag, at, result = number << 3 | 2, 0, 0
    try:
        for _ in range(most):
            key, at = _decode_varint(data, at)
            if key & 7 != 2:
                break
            size, at = _decode_varint(data, at)
            at += size
            result += key == tag
    except IndexError:
        pass
    return result


def _decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at `at`. Return its value and the position after it. Raises IndexError if it is too long or
    truncated."""
    value = 0
    for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError


def cost_of_bytes(size: int) -> int:
    """Return the cost of a request by its size in bytes."""
    return min(1 + size // BYTES_PER_SEAT, MAX_BYTES_COST)
