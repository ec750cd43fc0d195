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
its flow by its width, and the flow with the lowest clock is next. No clock is below the clock of the level, so an idle flow
saves no turns. Between equal clocks, the flow whose call began longest ago is next.

For each four seats that a flow holds, it leaves one seat free (a dynamic threshold). One flow alone has four fifths of the
seats, two have four ninths each. A flow that holds nothing needs one free seat, whatever the width of its call: wide calls do
not starve, they overdraw. Where the number of seats is not many times their width, they get down to half as much as narrow
calls.

Sources: Start-time Fair Queueing, P. Goyal, H. Vin, H. Cheng, SIGCOMM 1996; Dynamic Queue Length Thresholds for Shared-Memory
Packet Switches, A. Choudhury, E. Hahne, IEEE/ACM Transactions on Networking 6(2), 1998;
https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#suggested-configuration-objects
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from apiserver.auth.authentication import MASTERS, NODES_GROUP, User
from apiserver.auth.permissions import ELECTIONS_GROUP, Action
from apiserver.flow.account import Account, Room

LEADER_ELECTION, NODE_HIGH, SYSTEM, WORKLOAD = "leader-election", "node-high", "system", "workload"
CATCH_ALL = "catch-all"
SHARES: Mapping[str, int] = {LEADER_ELECTION: 10, NODE_HIGH: 40, SYSTEM: 50, WORKLOAD: 100, CATCH_ALL: 5}
"""The more important first."""


GREED = 4
"""Seats that a flow may hold for each one that it leaves free."""
KEPT = 1000
"""Flows of a level that are remembered although they have no calls."""


class Call(Protocol):
    """Compared by identity."""

    @property
    def width(self) -> int:
        """Seats that it takes."""
        ...

    @property
    def size(self) -> int:
        """Bytes of its request."""
        ...


CallT = TypeVar("CallT", bound=Call)


class Flow(Generic[CallT]):
    """`held`: seats that its calls have. `waiting`: its calls that have none, first in, first out, with `bytes` of requests.
    `account`: what its user was told and has not taken yet. `returns`: when the last of those that were refused is to come
    back."""

    __slots__ = ("account", "bytes", "clock", "held", "level", "returns", "user", "waiting")

    def __init__(self, level: "Level[CallT]", user: str) -> None:
        self.level = level
        self.user = user
        self.held = 0
        self.account = Account(level.room)
        self.waiting: OrderedDict[CallT, None] = OrderedDict()
        self.bytes = 0
        self.clock = level.clock
        self.returns = 0.0

    def fits(self, width: int, free: int) -> bool:
        """May a call of this width begin, when so many seats are free?"""
        held = self.held
        return free > 0 and (not held or held <= GREED * (free - width))

    def begin(self, width: int) -> None:
        level = self.level
        self.held += width
        level.held += width
        level.calls += 1
        level.begun += 1
        if self.clock > level.clock:
            level.clock = self.clock
        self.clock = level.clock + width
        if self.waiting:
            level.queued[self] = level.queued.pop(self)

    def end(self, width: int) -> None:
        self.held -= width
        self.level.held -= width
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


class Level(Generic[CallT]):
    """`seats`: its own. `held`: those that its calls have, which may be more: others lend it theirs. `calls`: how many have
    some now; `begun`: ever. `waiting`: how many have none; `passed`: how many of other levels went before the next of these.
    `queued`: the flows that these are of, at the end whose call began last. `room`: for what is told and not taken, of all
    levels."""

    def __init__(self, name: str, seats: int, room: Room) -> None:
        self.name = name
        self.seats = seats
        self.room = room
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
            if len(self._flows) >= KEPT:
                self._flows = {
                    name: flow for name, flow in self._flows.items() if flow.held or flow.waiting or flow.account.busy
                }
            flow = self._flows[user] = Flow(self, user)
        return flow

    def next(self, free: int) -> Flow[CallT] | None:
        """The flow whose first call is to begin; None: there is room for none."""
        chosen: Flow[CallT] | None = None
        for flow in self.queued:
            if (chosen is None or flow.clock < chosen.clock) and flow.fits(flow.first().width, free):
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
