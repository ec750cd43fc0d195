"""The states of the election protocol: etcd, candidates, the campaigns that API servers hold for them, what is on its way.

What is not here, and why nothing is lost by it:

* Time. A deadline is an action that may happen at any moment: a process that is stopped (SIGSTOP) or slow is one whose actions
  do not come up. Only one order of events is taken for granted: a lease does not run out while its owner's clock still allows
  it to lead. That is what lease.py shows.
* Whether a server is up. One that crashes is one that forgets; while it is down, nothing happens there.
* The servers' caches. A server acts on what etcd has, but as late as it likes. What a stale cache could add is an attempt to
  create a key that exists, which fails.
* Binds between the candidate and etcd: an API server holds nothing about them. They arrive at any time, or never.
* What the informers of a leader have seen: the least that the barrier lets pass, everything up to the election. More knowledge
  forbids more.
* The line of candidates on one server: any of them may stand.

Revisions and leases are numbered anew in every state, in their order, so that there are finitely many of both.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

NOBODY = -1
DEAD = -1
"""Stands for every lease that has run out."""
Order = tuple[int, int, int]
"""The new number of each, and NOBODY's."""
KEEP: Order = (0, 1, NOBODY)
SWAP: Order = (1, 0, NOBODY)
Look = tuple[int, ...]


class Phase(IntEnum):
    """Of a campaign (apiserver.election.candidates): which of its requests is on its way, to it or to etcd."""

    NONE = 0
    OPENING = 1  # the candidate's first message
    CLEARING = 2  # delete the key of the session that the candidate has forsaken
    RESUMING = 3  # the election's key has been read, the session is to be resumed
    TAKING = 4  # put the key again, for a session that moved here
    WAITING = 5
    CREATING = 6  # create the key
    UNKNOWN = 7  # the create's answer was lost
    ADOPTING = 8  # put the key again, which was created for this session by a server that is gone, or late
    LEADING = 9
    DEPOSING = 10  # delete the key
    OVER = 11


class Message(IntEnum):
    """From a server to its candidate."""

    OPENED = 1
    ELECTED = 2
    LOST = 3


class Key(NamedTuple):
    """The election's key in etcd. `maker`: the server that created it without getting an answer; it would know its bytes."""

    token: int
    mod: int
    lease: int
    holder: int
    maker: int


NO_KEY = Key(0, 0, 0, NOBODY, NOBODY)


class Campaign(NamedTuple):
    """One stream: the server's side of it, and what was said on it and not heard yet."""

    server: int
    phase: Phase
    lease: int
    """Of the session; before it is opened, the one to be resumed."""
    token: int
    """Before the session is opened, the one that the candidate claims; then the one that it holds from here."""
    mod: int
    """The key's mod_revision, as this server knows it."""
    cut: bool
    """The stream is broken: nothing arrives any more, and each end finds out when it does."""
    said: tuple[tuple[Message, int], ...]
    forsaken: int
    """The session of a term that the candidate has stood down from by its own clock; its key is to go."""


NO_CAMPAIGN = Campaign(NOBODY, Phase.NONE, 0, 0, 0, False, (), 0)


class Candidate(NamedTuple):
    """`current` is the campaign of the stream that it uses, `left` those of streams that it has left, where the servers do not
    know it yet. `forsaken`: see Campaign. `token` is that of its term; `valid`: its clock allows it to lead. `decided`: it has
    given away the node's one slot in this term. `ended`: the highest token that it has stood down from."""

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
    """A request to etcd that no campaign waits for."""

    CREATE = 1
    PUT = 2
    DELETE = 3
    NOMINATION = 4  # somebody asks for a transfer
    TRANSFER = 5  # the delete of the key, once a candidate has accepted the nomination


class Orphan(NamedTuple):
    """`holder`: for whom it is. `mod`: what it compares, the key's mod_revision; of a transfer, the key's token. A CREATE
    compares that there is no key; there it is the server that sent it."""

    kind: Sent
    holder: int
    lease: int
    mod: int


class State(NamedTuple):
    revision: int
    key: Key
    leases: tuple[int, ...]
    """Those that have not run out."""
    candidates: tuple[Candidate, ...]
    orphans: tuple[Orphan, ...]
    binds: tuple[int, ...]
    """Tokens of those on their way. Each is of another pod, to the same node, which has room for one."""
    bound: int
    """The revision at which a pod was bound to the node; 0: it is free."""
    faults: int
    """How many may happen yet."""
    decisions: int
    """How many may be made yet."""
    wrong: str
    """What an action has found to be wrong."""


def start(candidates: int, faults: int, decisions: int) -> State:
    """All candidates run, and none has a stream yet."""
    candidate = Candidate(True, 0, 0, 0, False, False, 0, NO_CAMPAIGN, ())
    return State(0, NO_KEY, (), (candidate,) * candidates, (), (), 0, faults, decisions, "")


def campaigns(candidate: Candidate) -> Iterator[tuple[int, Campaign]]:
    """Those of a candidate, with where they are: NOBODY for the current one, else the place in `left`."""
    if candidate.current.phase:
        yield NOBODY, candidate.current
    yield from enumerate(candidate.left)


def canonical(state: State, servers: int, *, dead: bool = False) -> State:
    """Candidates and servers are alike; of states that differ in their order, in numbers only, or in what can have no effect
    any more, always the same one. `dead`: keep also what the guards would stop."""
    key = state.key
    orphans = tuple([each for each in state.orphans if dead or _can_happen(each, state)])
    binds = state.binds if dead else tuple([each for each in state.binds if each == key.token])
    found = {key.token, key.mod, state.bound, *binds, *(each.mod for each in orphans if each.kind != Sent.CREATE)}
    for candidate in state.candidates:
        found.add(candidate.token)
        for _, campaign in campaigns(candidate):
            found.add(campaign.token)
            found.update([number for kind, number in campaign.said if kind == Message.ELECTED])
    found.discard(0)
    revisions = {0: 0, **{revision: rank for rank, revision in enumerate(sorted(found), 1)}}
    live = state._replace(orphans=orphans, binds=binds)
    holder_orders = _orders([_looks(candidate) for candidate in state.candidates])
    server_orders = _orders([_business(state, server) for server in range(servers)])
    return min([_renamed(live, revisions, holders, servers) for holders in holder_orders for servers in server_orders])


def _orders(looks: list[Look]) -> tuple[Order, ...]:
    """The order that puts what looks smaller first; both when they look alike."""
    if len(looks) < 2 or looks[0] < looks[1]:
        return (KEEP,)
    return (SWAP,) if looks[1] < looks[0] else (KEEP, SWAP)


def _looks(candidate: Candidate) -> Look:
    """What can be told of a candidate without names and numbers."""
    current = candidate.current
    return candidate.up, candidate.valid, candidate.decided, current.phase, current.cut, candidate.token, len(candidate.left)


def _business(state: State, server: int) -> Look:
    """What can be told of a server, likewise."""
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
    """`holders`, `servers`: the new number of each candidate and server."""
    candidates = [state.candidates[holders[number]] for number in range(len(state.candidates))]
    key = state.key
    alive = state.leases
    names = {0: 0}

    def lease_of(lease: int) -> int:
        """Numbered in the order in which they come up. Those that have run out are all alike."""
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
        """In an order that does not depend on how their leases were numbered."""
        if len(old) > 1:
            looks = [
                (
                    names.get(each.lease, 0),
                    each.lease in alive,
                    names.get(each.forsaken, 0),
                    campaign(each._replace(lease=0, forsaken=0)),
                )
                for each in old
            ]
            old = tuple([old[place] for _, place in sorted(zip(looks, range(len(old)), strict=True))])
        return tuple(sorted([campaign(each) for each in old]))

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
        state.orphans, key=lambda each: (names.get(each.lease, 0), each.lease in alive, orphan(each._replace(lease=0)))
    )
    orphans = tuple(sorted([orphan(each) for each in sent]))
    return State(
        len(revisions) - 1,
        Key(revisions[key.token], revisions[key.mod], lease_of(key.lease), holders[key.holder], servers[key.maker]),
        tuple(range(1, 1 + max(names.values()))),
        fresh,
        orphans,
        tuple(sorted([revisions[each] for each in state.binds])),
        revisions[state.bound],
        state.faults,
        state.decisions,
        state.wrong,
    )
