"""The actions of an API server for one candidate (apiserver/election/campaign.py), with the responses of etcd.

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
    context = _Context(rules, state, number, place, campaign)
    match campaign.phase:
        case Phase.OPENING:
            yield from _open(context)
        case Phase.CLEARING:
            yield from _cleared(context)
        case Phase.RESUMING:
            yield from _resume(context)
        case Phase.TAKING | Phase.ADOPTING:
            yield from _taken(context)
        case Phase.WAITING:
            yield from _wait(context)
        case Phase.CREATING:
            yield from _created(context)
        case Phase.UNKNOWN:
            yield from _find_out(context)
        case Phase.LEADING:
            yield from _lead(context)
        case Phase.DEPOSING:
            yield from _deleted(context)


class _Context:
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


def _open(context: _Context) -> Steps:
    """Read the key to resume a session, or open a session."""
    campaign, key = context.campaign, context.state.key
    if context.place != NOBODY:
        yield context.over("never")
    if campaign.forsaken and campaign.forsaken == key.lease:
        yield context.step("clear", phase=Phase.CLEARING, mod=key.mod)
        return
    if not campaign.lease:
        yield _new_session(context)
        return
    own = key if key.lease == campaign.lease else NO_KEY
    if campaign.token and own.token != campaign.token and Guard.RESUME_TOKEN in context.rules.guards:
        yield context.over("refuse")
    else:
        result = f"token {own.token}" if own.token else "not its own"
        yield context.step("read", result, phase=Phase.RESUMING, token=own.token, mod=own.mod)


def _cleared(context: _Context) -> Steps:
    """Delete the key of a session that the candidate has forsaken, then continue to open the session."""
    if context.state.key.token and context.state.key.mod == context.campaign.mod:
        yield context.step("cleared", state=_without_key(context), phase=Phase.OPENING, mod=0, forsaken=0)
    else:
        yield context.step("spared", phase=Phase.OPENING, mod=0, forsaken=0)


def _without_key(context: _Context) -> State:
    """Delete the key. This is wrong if its holder leads on another stream."""
    wrong = "a server deletes the key of a session that leads from another stream" if _leads_elsewhere(context) else ""
    return context.state._replace(revision=context.state.revision + 1, key=NO_KEY, wrong=wrong)


def _resume(context: _Context) -> Steps:
    """Resume the session if its lease has not expired, and take over its key if it has one."""
    campaign = context.campaign
    if context.alive and campaign.token:
        if Guard.TAKE_OVER in context.rules.guards:
            yield context.step("resume", campaign.lease, phase=Phase.TAKING)
        else:
            said = context.say((Message.OPENED, campaign.lease), (Message.ELECTED, campaign.token))
            yield context.step("resume", campaign.lease, phase=Phase.LEADING, said=said)
    elif context.alive:
        yield context.step("resume", campaign.lease, phase=Phase.WAITING, said=context.say((Message.OPENED, campaign.lease)))
    elif campaign.token:
        yield context.over("too-late")
    else:
        yield _new_session(context)


def _new_session(context: _Context) -> Step[State]:
    lease = 1 + _highest_lease(context.state)
    granted = context.state._replace(leases=(*context.state.leases, lease))
    said = context.say((Message.OPENED, lease))
    return context.step("open", lease, state=granted, phase=Phase.WAITING, lease=lease, said=said)


def _highest_lease(state: State) -> int:
    campaigns = (item for candidate in state.candidates for item in (candidate.current, *candidate.left))
    orphans = (orphan.lease for orphan in state.orphans)
    sessions = (max(candidate.session, candidate.forsaken) for candidate in state.candidates)
    return max(
        0,
        state.key.lease,
        *state.leases,
        *sessions,
        *(max(campaign.lease, campaign.forsaken) for campaign in campaigns),
        *orphans,
    )


def _taken(context: _Context) -> Steps:
    """Put the existing key with a compare of the mod_revision at which it was read."""
    campaign, key = context.campaign, context.state.key
    adopting = campaign.phase == Phase.ADOPTING
    if key.token and key.mod == campaign.mod:
        revision = context.state.revision + 1
        moved = context.state._replace(revision=revision, key=key._replace(mod=revision, lease=campaign.lease))
        elected = (Message.ELECTED, campaign.token)
        said = context.say(elected) if adopting else context.say((Message.OPENED, campaign.lease), elected)
        yield context.step("taken", revision, state=moved, phase=Phase.LEADING, mod=revision, said=said)
    elif key.token == campaign.token:
        yield context.step("moved", phase=campaign.phase, mod=key.mod)
    elif adopting:
        yield context.step("not-taken", phase=Phase.WAITING, token=0, mod=0)
    else:
        yield context.over("not-taken")
    if after := context.rules.after(Fault.LOST, context.state):
        orphan = Orphan(Sent.PUT, context.number, campaign.lease, campaign.mod)
        yield context.over("put-unknown", state=after._replace(orphans=(*after.orphans, orphan)), fault=True, lost=False)


def _wait(context: _Context) -> Steps:
    campaign, key = context.campaign, context.state.key
    if context.noticed:
        yield context.over("gone")
    elif not context.alive:
        yield context.over("expired")
    if not key.token:
        yield context.step("stand", phase=Phase.CREATING)
    elif key.lease == campaign.lease and not context.ended and Guard.ADOPTION in context.rules.guards:
        yield context.step("adopt", phase=Phase.ADOPTING, token=key.token, mod=key.mod)
    if not context.ended:
        yield from _accept(context)


def _accept(context: _Context) -> Steps:
    """Accept the nomination for a transfer from another candidate. The delete of the transfer follows."""
    for place, sent in enumerate(context.state.orphans):
        if sent.kind == Sent.NOMINATION and sent.holder != context.number:
            transfer = sent._replace(kind=Sent.TRANSFER, holder=context.number)
            orphans = (*context.state.orphans[:place], transfer, *context.state.orphans[place + 1 :])
            yield context.step("accept", state=context.state._replace(orphans=orphans))


def _created(context: _Context) -> Steps:
    """Create the key with the lease if it does not exist."""
    campaign, state = context.campaign, context.state
    if state.key.token:
        yield context.step("beaten", phase=Phase.WAITING)
    elif not context.alive:
        yield context.over("no-lease")
    else:
        token = state.revision + 1
        created = state._replace(revision=token, key=Key(token, token, campaign.lease, context.number, NOBODY))
        said = context.say((Message.ELECTED, token))
        yield context.step("created", token, state=created, phase=Phase.LEADING, token=token, mod=token, said=said)
    if after := context.rules.after(Fault.LOST, state):
        orphan = Orphan(Sent.CREATE, context.number, campaign.lease, campaign.server)
        sent = after._replace(orphans=(*after.orphans, orphan))
        yield context.step("create-unknown", state=sent, fault=True, phase=Phase.UNKNOWN)


def _find_out(context: _Context) -> Steps:
    """After a create without a response, check whether the key contains the bytes of the request."""
    campaign, key = context.campaign, context.state.key
    if key.lease == campaign.lease and key.maker == campaign.server:
        said = context.say((Message.ELECTED, key.token))
        resolved = context.state._replace(key=key._replace(maker=NOBODY))  # the bytes of each create are unique
        yield context.step("found", state=resolved, phase=Phase.LEADING, token=key.token, mod=key.token, said=said)
        return
    yield context.step("in-doubt", phase=Phase.WAITING)
    if Guard.NO_REVOCATION not in context.rules.guards:
        lost = "a server ends a session that leads from another stream"
        wrong = lost if key.lease == campaign.lease and _leads_elsewhere(context) else ""
        alive = tuple(lease for lease in context.state.leases if lease != campaign.lease)
        left = NO_KEY if key.lease == campaign.lease else key
        yield context.over("revoke", state=context.state._replace(leases=alive, key=left, wrong=wrong))


def _lead(context: _Context) -> Steps:
    """Depose a candidate that has disconnected or is silent. If the store is unavailable, leave the key to its lease."""
    campaign, key = context.campaign, context.state.key
    if key.token != campaign.token or key.mod != campaign.mod:
        yield context.over("verdict")
    slow = context.rules.after(Fault.SLOW, context.state)
    if context.noticed:
        yield context.step("depose", phase=Phase.DEPOSING)
    elif slow and not context.ended:
        yield context.step("silent", state=slow, fault=True, phase=Phase.DEPOSING)
    if slow:
        yield context.over("abandon", state=slow, fault=True)


def _deleted(context: _Context) -> Steps:
    campaign, key = context.campaign, context.state.key
    guarded = Guard.DEPOSE_COMPARE in context.rules.guards
    if key.token and (key.mod == campaign.mod or not guarded):
        yield context.over("deleted", state=_without_key(context))
    else:
        yield context.over("spared")


def _leads_elsewhere(context: _Context) -> bool:
    """Whether a candidate leads with the current key on another stream."""
    key = context.state.key
    return any(
        each.phase == Phase.LEADING and each.token == key.token and each.mod == key.mod
        for number, candidate in enumerate(context.state.candidates)
        for place, each in ((NOBODY, candidate.current),)
        if (number, place) != (context.number, context.place)
    )
