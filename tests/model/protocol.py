"""The states of the election protocol: etcd, candidates, their campaigns on API servers, and messages in flight.

The model omits the following:

* Time. A deadline is an action that can happen at any moment. The actions of a slow or stopped (SIGSTOP) process do not happen.
  The model only assumes that a lease does not expire during the term of its owner, which lease.py checks.
* Down servers. A crash clears the state of a server, and no actions happen while it is down.
* The caches of servers. A server acts on the state of etcd, with any delay. A stale cache could only add an attempt to create
  an existing key, which fails.
* Binds in API servers, which keep no state about them. A bind arrives at any time, or never.
* The informers of a leader. They have seen everything up to the election, which is the minimum that the barrier requires. More
  recent informers permit fewer binds.
* The queue of candidates on one server. Any of them can create the key.

Each state renumbers revisions and leases in their order, so that their number is finite.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

NOBODY = -1
DEAD = -1
"""Represents all expired leases."""
Order = tuple[int, int, int]
"""The new number of each, and that of NOBODY."""
KEEP: Order = (0, 1, NOBODY)
SWAP: Order = (1, 0, NOBODY)
Look = tuple[int, ...]


class Phase(IntEnum):
    """The phase of a campaign (pinnace.apiserver.election.campaign) states which of its requests is in flight."""

    NONE = 0
    OPENING = 1  # the first message of the candidate
    CLEARING = 2  # delete the key of the forsaken session
    RESUMING = 3  # resume the session after the read of the election's key
    TAKING = 4  # take over the key of a session that moved to this server
    WAITING = 5
    CREATING = 6  # create the key
    UNKNOWN = 7  # the response to the create was lost
    ADOPTING = 8  # take over a key that another server created for this session
    LEADING = 9
    DEPOSING = 10  # delete the key
    OVER = 11


class Message(IntEnum):
    """A message from a server to its candidate."""

    OPENED = 1
    ELECTED = 2
    LOST = 3


class Key(NamedTuple):
    """The election's key in etcd. `maker` is the server that created it without a response and can recognize its bytes."""

    token: int
    mod: int
    lease: int
    holder: int
    maker: int


NO_KEY = Key(0, 0, 0, NOBODY, NOBODY)


class Campaign(NamedTuple):
    """The server side of one stream, and its messages in flight."""

    server: int
    phase: Phase
    lease: int
    """The lease of the session. Before the session is open, that of the session to resume."""
    token: int
    """The token of the term on this stream. Before the session is open, the token that the candidate claims."""
    mod: int
    """The mod_revision of the key that this server knows."""
    cut: bool
    """The stream is broken. No messages arrive, and each end detects this at any later time."""
    said: tuple[tuple[Message, int], ...]
    forsaken: int
    """The session of a term that ended by the candidate's clock. The server deletes its key."""


NO_CAMPAIGN = Campaign(NOBODY, Phase.NONE, 0, 0, 0, False, (), 0)


class Candidate(NamedTuple):
    """`current` is the campaign of the current stream. `left` are those of streams that the candidate has left and whose
    servers have not noticed. For `forsaken`, see Campaign. `token` is that of the term, which is `valid` by the candidate's
    clock. `decided`: it has assigned the node's only slot in this term. `ended` is the highest token that it has given up."""

    up: bool
    session: int
    forsaken: int
    token: int
    valid: bool
    decided: bool
    ended: int
    current: Campaign
    left: tuple[Campaign, ...]


class Sent(IntEnum):
    """A request to etcd whose sender does not wait for the response."""

    CREATE = 1
    PUT = 2
    DELETE = 3
    NOMINATION = 4  # a request for a transfer
    TRANSFER = 5  # the delete of the key, once a candidate has accepted the nomination


class Orphan(NamedTuple):
    """A request for candidate `holder`. `mod` is the compared value: the key's mod_revision, or the key's token for a transfer.
    For a CREATE, which compares that no key exists, it is the server that sent the request."""

    kind: Sent
    holder: int
    lease: int
    mod: int


class State(NamedTuple):
    revision: int
    key: Key
    leases: tuple[int, ...]
    """The leases that have not expired."""
    candidates: tuple[Candidate, ...]
    orphans: tuple[Orphan, ...]
    binds: tuple[int, ...]
    """The tokens of binds in flight. Each binds a different pod to the same node, which has room for one pod."""
    bound: int
    """The revision at which a pod was bound to the node, or 0 if the node is free."""
    faults: int
    """The number of remaining faults."""
    decisions: int
    """The number of remaining scheduling decisions."""
    wrong: str
    """The violation that an action has detected."""


def start(candidates: int, faults: int, decisions: int) -> State:
    """Return the initial state: all candidates run without a stream."""
    candidate = Candidate(True, 0, 0, 0, False, False, 0, NO_CAMPAIGN, ())
    return State(0, NO_KEY, (), (candidate,) * candidates, (), (), 0, faults, decisions, "")


def campaigns(candidate: Candidate) -> Iterator[tuple[int, Campaign]]:
    """Yield the campaigns of a candidate with their place: NOBODY for the current one, otherwise the index in `left`."""
    if candidate.current.phase:
        yield NOBODY, candidate.current
    yield from enumerate(candidate.left)


def canonical(state: State, servers: int, *, dead: bool = False) -> State:
    """Return the representative of states that only differ in the order of candidates and servers, in numbers, or in requests
    without effect. With `dead`, keep requests that the guards would stop."""
    key = state.key
    orphans = tuple([orphan for orphan in state.orphans if dead or _can_happen(orphan, state)])
    binds = state.binds if dead else tuple([bind for bind in state.binds if bind == key.token])
    result = {key.token, key.mod, state.bound, *binds, *(orphan.mod for orphan in orphans if orphan.kind != Sent.CREATE)}
    for candidate in state.candidates:
        result.add(candidate.token)
        for _, campaign in campaigns(candidate):
            result.add(campaign.token)
            result.update([number for kind, number in campaign.said if kind == Message.ELECTED])
    result.discard(0)
    revisions = {0: 0, **{revision: rank for rank, revision in enumerate(sorted(result), 1)}}
    live = state._replace(orphans=orphans, binds=binds)
    holder_orders = _orders([_looks(candidate) for candidate in state.candidates])
    server_orders = _orders([_business(state, server) for server in range(servers)])
    return min([_renamed(live, revisions, holders, servers) for holders in holder_orders for servers in server_orders])


def _orders(looks: list[Look]) -> tuple[Order, ...]:
    """Return the order that sorts by look, or both orders if the looks are equal."""
    if len(looks) < 2 or looks[0] < looks[1]:
        return (KEEP,)
    return (SWAP,) if looks[1] < looks[0] else (KEEP, SWAP)


def _looks(candidate: Candidate) -> Look:
    """Describe a candidate without names and numbers."""
    current = candidate.current
    return candidate.up, candidate.valid, candidate.decided, current.phase, current.cut, candidate.token, len(candidate.left)


def _business(state: State, server: int) -> Look:
    """Describe a server without names and numbers."""
    phases = sorted(each.phase for candidate in state.candidates for _, each in campaigns(candidate) if each.server == server)
    return (state.key.maker == server, *phases)


def _can_happen(orphan: Orphan, state: State) -> bool:
    match orphan.kind:
        case Sent.CREATE:
            return orphan.lease in state.leases
        case Sent.PUT | Sent.DELETE:
            return orphan.mod == state.key.mod
        case Sent.NOMINATION | Sent.TRANSFER:
            return orphan.mod == state.key.token


def _renamed(state: State, revisions: dict[int, int], holders: Order, servers: Order) -> State:
    """`holders` and `servers` contain the new number of each candidate and server."""
    candidates = [state.candidates[holders[number]] for number in range(len(state.candidates))]
    key = state.key
    alive = state.leases
    names = {0: 0}

    def lease_of(lease: int) -> int:
        """Number leases in order of occurrence. All expired leases have the number DEAD."""
        if lease not in names:
            names[lease] = max(names.values()) + 1 if lease in alive else DEAD
        return names[lease]

    for candidate in candidates:
        lease_of(candidate.session)
        lease_of(candidate.forsaken)
        lease_of(candidate.current.lease)
        lease_of(candidate.current.forsaken)
    lease_of(key.lease)

    def campaign(old: Campaign) -> Campaign:
        server, phase, lease, token, mod, cut, said, forsaken = old
        if not phase:
            return old
        if said:
            said = tuple([(kind, revisions[number] if kind == Message.ELECTED else lease_of(number)) for kind, number in said])
        known = revisions[mod] if mod == key.mod else 0
        return Campaign(servers[server], phase, lease_of(lease), revisions[token], known, cut, said, max(lease_of(forsaken), 0))

    def several(old: tuple[Campaign, ...]) -> tuple[Campaign, ...]:
        """Sort independently of the numbers of the leases."""
        if len(old) > 1:
            looks = [
                (
                    names.get(item.lease, 0),
                    item.lease in alive,
                    names.get(item.forsaken, 0),
                    campaign(item._replace(lease=0, forsaken=0)),
                )
                for item in old
            ]
            old = tuple([old[place] for _, place in sorted(zip(looks, range(len(old)), strict=True))])
        return tuple(sorted([campaign(item) for item in old]))

    def orphan(old: Orphan) -> Orphan:
        kind, holder, lease, mod = old
        return Orphan(kind, holders[holder], lease_of(lease), servers[mod] if kind == Sent.CREATE else revisions[mod])

    fresh = tuple(
        [
            Candidate(
                up,
                lease_of(session),
                max(lease_of(forsaken), 0),
                revisions[token],
                valid,
                decided,
                revisions.get(ended, 0),
                campaign(current),
                several(left),
            )
            for up, session, forsaken, token, valid, decided, ended, current, left in candidates
        ]
    )
    sent = sorted(
        state.orphans, key=lambda item: (names.get(item.lease, 0), item.lease in alive, orphan(item._replace(lease=0)))
    )
    orphans = tuple(sorted([orphan(item) for item in sent]))
    return State(
        len(revisions) - 1,
        Key(revisions[key.token], revisions[key.mod], lease_of(key.lease), holders[key.holder], servers[key.maker]),
        tuple(range(1, 1 + max(names.values()))),
        fresh,
        orphans,
        tuple(sorted([revisions[bind] for bind in state.binds])),
        revisions[state.bound],
        state.faults,
        state.decisions,
        state.wrong,
    )
