"""The actions of an API server for one candidate (apiserver/election/candidates.py), with the responses of etcd.

Each request to etcd consists of two actions: the server sends it, and it takes effect with a response. Any other actions can
happen between them.
"""

from typing import Any

from tests.model.candidates import put
from tests.model.checker import Step
from tests.model.protocol import NO_CAMPAIGN, NO_KEY, NOBODY, Campaign, Key, Message, Orphan, Phase, Sent, State
from tests.model.rules import NAMES, Fault, Guard, Rules, Steps, server

LOST = (Message.LOST, 0)


def campaign_steps(rules: Rules, state: State, number: int, place: int, campaign: Campaign) -> Steps:
    """`place` is NOBODY for the candidate's current stream, otherwise the index among the streams that it has left."""
    who = _Who(rules, state, number, place, campaign)
    match campaign.phase:
        case Phase.OPENING:
            yield from _open(who)
        case Phase.CLEARING:
            yield from _cleared(who)
        case Phase.RESUMING:
            yield from _resume(who)
        case Phase.TAKING | Phase.ADOPTING:
            yield from _taken(who)
        case Phase.WAITING:
            yield from _wait(who)
        case Phase.CREATING:
            yield from _created(who)
        case Phase.UNKNOWN:
            yield from _find_out(who)
        case Phase.LEADING:
            yield from _lead(who)
        case Phase.DEPOSING:
            yield from _deleted(who)


class _Who:
    """One campaign in one state, and its possible steps."""

    def __init__(self, rules: Rules, state: State, number: int, place: int, campaign: Campaign) -> None:
        self.rules = rules
        self.state = state
        self.number = number
        self.place = place
        self.campaign = campaign
        self.names = (server(campaign.server), NAMES[number])

    @property
    def alive(self) -> bool:
        """Whether the lease has not expired."""
        return self.campaign.lease in self.state.leases

    @property
    def ended(self) -> bool:
        """Whether the stream has ended."""
        return self.place != NOBODY or self.campaign.cut

    @property
    def noticed(self) -> bool:
        """Whether the server can notice the end of the stream."""
        return self.ended and Guard.NOTICE in self.rules.guards

    def step(
        self, action: str, *subjects: object, state: State | None = None, fault: bool = False, **changes: Any
    ) -> Step[State]:
        """Continue the campaign with these changes."""
        action_ = (action, *self.names, *map(str, subjects))
        return Step(action_, self._with(state or self.state, self.campaign._replace(**changes)), fault)

    def say(self, *messages: tuple[Message, int]) -> tuple[tuple[Message, int], ...]:
        """Return the pending messages and the new ones, or none if the stream has ended."""
        return () if self.ended else self.campaign.said + messages

    def over(
        self, action: str, *subjects: object, state: State | None = None, fault: bool = False, lost: bool = True
    ) -> Step[State]:
        """End the campaign. With `lost`, notify the candidate of the end of its session."""
        action_ = (action, *self.names, *map(str, subjects))
        over = NO_CAMPAIGN
        if self.place == NOBODY:
            over = self.campaign._replace(
                phase=Phase.OVER, lease=0, token=0, mod=0, forsaken=0, said=self.say(LOST) if lost else self.campaign.said
            )
        return Step(action_, self._with(state or self.state, over), fault)

    def _with(self, state: State, campaign: Campaign) -> State:
        candidate = state.candidates[self.number]
        if self.place == NOBODY:
            return put(state, self.number, candidate._replace(current=campaign))
        left = list(candidate.left)
        left[self.place : self.place + 1] = [campaign] if campaign.phase else []
        return put(state, self.number, candidate._replace(left=tuple(left)))


def _open(who: _Who) -> Steps:
    """Read the key to resume a session, or open a session."""
    campaign, key = who.campaign, who.state.key
    if who.place != NOBODY:
        yield who.over("never")
    if campaign.forsaken and campaign.forsaken == key.lease:
        yield who.step("clear", phase=Phase.CLEARING, mod=key.mod)
        return
    if not campaign.lease:
        yield _new_session(who)
        return
    own = key if key.lease == campaign.lease else NO_KEY
    if campaign.token and own.token != campaign.token and Guard.RESUME_TOKEN in who.rules.guards:
        yield who.over("refuse")
    else:
        found = f"token {own.token}" if own.token else "not its own"
        yield who.step("read", found, phase=Phase.RESUMING, token=own.token, mod=own.mod)


def _cleared(who: _Who) -> Steps:
    """Delete the key of a session that the candidate has forsaken, then continue to open the session."""
    if who.state.key.token and who.state.key.mod == who.campaign.mod:
        yield who.step("cleared", state=_without_key(who), phase=Phase.OPENING, mod=0, forsaken=0)
    else:
        yield who.step("spared", phase=Phase.OPENING, mod=0, forsaken=0)


def _without_key(who: _Who) -> State:
    """Delete the key. This is wrong if its holder leads on another stream."""
    wrong = "a server deletes the key of a session that leads from another stream" if _leads_elsewhere(who) else ""
    return who.state._replace(revision=who.state.revision + 1, key=NO_KEY, wrong=wrong)


def _resume(who: _Who) -> Steps:
    """Resume the session if its lease has not expired, and take over its key if it has one."""
    campaign = who.campaign
    if who.alive and campaign.token:
        if Guard.TAKE_OVER in who.rules.guards:
            yield who.step("resume", campaign.lease, phase=Phase.TAKING)
        else:
            said = who.say((Message.OPENED, campaign.lease), (Message.ELECTED, campaign.token))
            yield who.step("resume", campaign.lease, phase=Phase.LEADING, said=said)
    elif who.alive:
        yield who.step("resume", campaign.lease, phase=Phase.WAITING, said=who.say((Message.OPENED, campaign.lease)))
    elif campaign.token:
        yield who.over("too-late")
    else:
        yield _new_session(who)


def _new_session(who: _Who) -> Step[State]:
    lease = 1 + _highest_lease(who.state)
    granted = who.state._replace(leases=(*who.state.leases, lease))
    said = who.say((Message.OPENED, lease))
    return who.step("open", lease, state=granted, phase=Phase.WAITING, lease=lease, said=said)


def _highest_lease(state: State) -> int:
    campaigns = (each for candidate in state.candidates for each in (candidate.current, *candidate.left))
    orphans = (orphan.lease for orphan in state.orphans)
    sessions = (max(candidate.session, candidate.forsaken) for candidate in state.candidates)
    return max(0, state.key.lease, *state.leases, *sessions, *(max(each.lease, each.forsaken) for each in campaigns), *orphans)


def _taken(who: _Who) -> Steps:
    """Put the existing key with a compare of the mod_revision at which it was read."""
    campaign, key = who.campaign, who.state.key
    adopting = campaign.phase == Phase.ADOPTING
    if key.token and key.mod == campaign.mod:
        revision = who.state.revision + 1
        moved = who.state._replace(revision=revision, key=key._replace(mod=revision, lease=campaign.lease))
        elected = (Message.ELECTED, campaign.token)
        said = who.say(elected) if adopting else who.say((Message.OPENED, campaign.lease), elected)
        yield who.step("taken", revision, state=moved, phase=Phase.LEADING, mod=revision, said=said)
    elif key.token == campaign.token:
        yield who.step("moved", phase=campaign.phase, mod=key.mod)
    elif adopting:
        yield who.step("not-taken", phase=Phase.WAITING, token=0, mod=0)
    else:
        yield who.over("not-taken")
    if after := who.rules.after(Fault.LOST, who.state):
        orphan = Orphan(Sent.PUT, who.number, campaign.lease, campaign.mod)
        yield who.over("put-unknown", state=after._replace(orphans=(*after.orphans, orphan)), fault=True, lost=False)


def _wait(who: _Who) -> Steps:
    campaign, key = who.campaign, who.state.key
    if who.noticed:
        yield who.over("gone")
    elif not who.alive:
        yield who.over("expired")
    if not key.token:
        yield who.step("stand", phase=Phase.CREATING)
    elif key.lease == campaign.lease and not who.ended and Guard.ADOPTION in who.rules.guards:
        yield who.step("adopt", phase=Phase.ADOPTING, token=key.token, mod=key.mod)
    if not who.ended:
        yield from _accept(who)


def _accept(who: _Who) -> Steps:
    """Accept the nomination for a transfer from another candidate. The delete of the transfer follows."""
    for place, sent in enumerate(who.state.orphans):
        if sent.kind == Sent.NOMINATION and sent.holder != who.number:
            transfer = sent._replace(kind=Sent.TRANSFER, holder=who.number)
            orphans = (*who.state.orphans[:place], transfer, *who.state.orphans[place + 1 :])
            yield who.step("accept", state=who.state._replace(orphans=orphans))


def _created(who: _Who) -> Steps:
    """Create the key with the lease if it does not exist."""
    campaign, state = who.campaign, who.state
    if state.key.token:
        yield who.step("beaten", phase=Phase.WAITING)
    elif not who.alive:
        yield who.over("no-lease")
    else:
        token = state.revision + 1
        created = state._replace(revision=token, key=Key(token, token, campaign.lease, who.number, NOBODY))
        said = who.say((Message.ELECTED, token))
        yield who.step("created", token, state=created, phase=Phase.LEADING, token=token, mod=token, said=said)
    if after := who.rules.after(Fault.LOST, state):
        orphan = Orphan(Sent.CREATE, who.number, campaign.lease, campaign.server)
        sent = after._replace(orphans=(*after.orphans, orphan))
        yield who.step("create-unknown", state=sent, fault=True, phase=Phase.UNKNOWN)


def _find_out(who: _Who) -> Steps:
    """After a create without a response, check whether the key contains the bytes of the request."""
    campaign, key = who.campaign, who.state.key
    if key.lease == campaign.lease and key.maker == campaign.server:
        said = who.say((Message.ELECTED, key.token))
        told = who.state._replace(key=key._replace(maker=NOBODY))  # the bytes of each create are unique
        yield who.step("found", state=told, phase=Phase.LEADING, token=key.token, mod=key.token, said=said)
        return
    yield who.step("in-doubt", phase=Phase.WAITING)
    if Guard.NO_REVOCATION not in who.rules.guards:
        lost = "a server ends a session that leads from another stream"
        wrong = lost if key.lease == campaign.lease and _leads_elsewhere(who) else ""
        alive = tuple(each for each in who.state.leases if each != campaign.lease)
        left = NO_KEY if key.lease == campaign.lease else key
        yield who.over("revoke", state=who.state._replace(leases=alive, key=left, wrong=wrong))


def _lead(who: _Who) -> Steps:
    """Depose a candidate that has disconnected or is silent. If the store is unavailable, leave the key to its lease."""
    campaign, key = who.campaign, who.state.key
    if key.token != campaign.token or key.mod != campaign.mod:
        yield who.over("verdict")
    slow = who.rules.after(Fault.SLOW, who.state)
    if who.noticed:
        yield who.step("depose", phase=Phase.DEPOSING)
    elif slow and not who.ended:
        yield who.step("silent", state=slow, fault=True, phase=Phase.DEPOSING)
    if slow:
        yield who.over("abandon", state=slow, fault=True)


def _deleted(who: _Who) -> Steps:
    campaign, key = who.campaign, who.state.key
    guarded = Guard.DEPOSE_COMPARE in who.rules.guards
    if key.token and (key.mod == campaign.mod or not guarded):
        yield who.over("deleted", state=_without_key(who))
    else:
        yield who.over("spared")


def _leads_elsewhere(who: _Who) -> bool:
    """Whether a candidate leads with the current key on another stream."""
    key = who.state.key
    return any(
        each.phase == Phase.LEADING and each.token == key.token and each.mod == key.mod
        for number, candidate in enumerate(who.state.candidates)
        for place, each in ((NOBODY, candidate.current),)
        if (number, place) != (who.number, who.place)
    )
