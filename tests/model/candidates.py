"""The actions and faults of a candidate (pinnace/client/election.py) and of its scheduler."""

from tests.model.checker import Step
from tests.model.protocol import NO_CAMPAIGN, Campaign, Candidate, Message, Phase, State
from tests.model.rules import NAMES, Fault, Guard, Rules, Steps, server


def candidate_steps(rules: Rules, state: State, number: int) -> Steps:
    candidate = state.candidates[number]
    name = NAMES[number]
    if not candidate.up:
        yield Step(("return", name), put(state, number, candidate._replace(up=True)), fault=True)
        return
    if candidate.current.phase:
        yield from hear(rules, state, number, candidate)
        yield from leave(rules, state, number, candidate)
    else:
        yield from _connect(rules, state, number, candidate)
    if candidate.token:
        yield from _lead(rules, state, number, candidate)
    if after := rules.after(Fault.CRASH, state):
        gone = Candidate(False, 0, 0, 0, False, False, 0, NO_CAMPAIGN, leaving(candidate))
        yield Step(("crash", name), put(after, number, gone), fault=True)


def put(state: State, number: int, candidate: Candidate) -> State:
    before = state.candidates
    return state._replace(candidates=(*before[:number], candidate, *before[number + 1 :]))


def leaving(candidate: Candidate) -> tuple[Campaign, ...]:
    """Return the streams that the candidate has left, including the current one."""
    current = candidate.current
    if current.phase in (Phase.NONE, Phase.OVER):
        return candidate.left
    return (*candidate.left, current._replace(cut=False, said=()))


def _connect(rules: Rules, state: State, number: int, candidate: Candidate) -> Steps:
    session, token = candidate.session, candidate.token
    for index in range(rules.servers):
        opening = Campaign(index, Phase.OPENING, session, token, 0, False, (), candidate.forsaken)
        action = ("connect", NAMES[number], server(index), str(session), str(token))
        yield Step(action, put(state, number, candidate._replace(current=opening)))


def hear(rules: Rules, state: State, number: int, candidate: Candidate) -> Steps:
    current = candidate.current
    if not current.said or current.cut:
        return
    (message, content), *rest = current.said
    name = NAMES[number]
    heard = candidate._replace(current=current._replace(said=tuple(rest)))
    match message:
        case Message.OPENED:
            forsaken = 0 if candidate.forsaken == current.forsaken else candidate.forsaken
            heard = heard._replace(session=content, forsaken=forsaken)
            if candidate.token and not candidate.valid:
                heard = _stood_down(heard)
            yield Step(("hear-opened", name, str(content)), put(state, number, heard))
        case Message.ELECTED if content == candidate.token:
            yield Step(("hear-elected", name, str(content)), put(state, number, heard))
        case Message.ELECTED if content <= candidate.ended and Guard.FINAL_LAPSE in rules.guards:
            left = _forsaking(heard)._replace(current=NO_CAMPAIGN, left=leaving(heard))
            yield Step(("hear-old", name, str(content)), put(state, number, left))
        case Message.ELECTED:
            # The term is valid only while the lease has not expired (lease.py). A new term drops earlier assumed pods.
            valid = candidate.session in state.leases or Guard.LEASE_ORDER not in rules.guards
            won = heard._replace(token=content, valid=valid, decided=False)
            yield Step(("hear-elected", name, str(content)), put(state, number, won))
        case Message.LOST:
            ended = max(candidate.ended, candidate.token)
            lost = heard._replace(session=0, token=0, valid=False, ended=ended, current=NO_CAMPAIGN)
            yield Step(("hear-lost", name), put(state, number, lost._replace(left=leaving(heard))))


def leave(rules: Rules, state: State, number: int, candidate: Candidate) -> Steps:
    current = candidate.current
    left = candidate._replace(current=NO_CAMPAIGN, left=leaving(candidate))
    over = current.phase == Phase.OVER and not current.said
    opened = current.phase >= Phase.WAITING and (Message.OPENED, current.lease) not in current.said
    if current.cut or over or (opened and not candidate.session):
        yield Step(("leave", NAMES[number], server(current.server)), put(state, number, left))
    elif after := rules.after(Fault.SLOW, state):
        yield Step(("impatient", NAMES[number], server(current.server)), put(after, number, left), fault=True)


def _lead(rules: Rules, state: State, number: int, candidate: Candidate) -> Steps:
    name, token = NAMES[number], candidate.token
    if not candidate.valid:
        yield Step(("stand-down", name, str(token)), put(state, number, _stood_down(candidate)))
        return
    if after := rules.after(Fault.SLOW, state):
        yield Step(("clock", name, str(token)), put(after, number, candidate._replace(valid=False)), fault=True)
    taken = 0 < state.bound <= token and Guard.BARRIER in rules.guards
    assumed = candidate.decided and Guard.ASSUME in rules.guards
    if state.decisions and not taken and not assumed:
        wrong = "a candidate acts with a token that it had given up" if token <= candidate.ended else ""
        decided = put(state, number, candidate._replace(decided=True))
        sent = decided._replace(decisions=state.decisions - 1, binds=(*state.binds, token), wrong=wrong)
        yield Step(("decide", name, str(token)), sent)


def _stood_down(candidate: Candidate) -> Candidate:
    ended = max(candidate.ended, candidate.token)
    return _forsaking(candidate)._replace(token=0, valid=False, ended=ended)


def _forsaking(candidate: Candidate) -> Candidate:
    return candidate._replace(forsaken=candidate.session or candidate.forsaken, session=0)
