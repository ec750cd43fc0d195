"""Actions of the environment: etcd, networks, and the processes of the API servers."""

from tests.model.candidates import put
from tests.model.checker import Step
from tests.model.protocol import NO_CAMPAIGN, NO_KEY, Candidate, Orphan, Phase, Sent, State
from tests.model.rules import NAMES, Fault, Guard, Rules, Steps, server


def world_steps(rules: Rules, state: State) -> Steps:
    yield from _binds(rules, state)
    yield from _orphans(rules, state)
    yield from _leases(rules, state)
    if state.key.token and (after := rules.after(Fault.TRANSFER, state)):
        asked = Orphan(Sent.NOMINATION, state.key.holder, 0, state.key.token)
        yield Step(
            ("nominate", NAMES[state.key.holder], str(state.key.token)), after._replace(orphans=(*after.orphans, asked)), True
        )
    if after := rules.after(Fault.CUT, state):
        yield from _cut(after)
    if after := rules.after(Fault.RESTART, state):
        for index in range(rules.servers):
            yield _restart(rules, after, index)


def _binds(rules: Rules, state: State) -> Steps:
    for token in sorted(set(state.binds)):
        rest = list(state.binds)
        rest.remove(token)
        arrived = state._replace(binds=tuple(rest))
        if token != state.key.token and Guard.TOKEN_COMPARE in rules.guards:
            yield Step(("fenced", str(token)), arrived)
            continue
        wrong = ""
        if token != state.key.token:
            wrong = f"a bind with token {token} commits, which is not the token of the key"
        elif state.bound:
            wrong = "two pods are bound to a node with room for one pod"
        revision = state.revision + 1
        yield Step(("bind", str(token), str(revision)), arrived._replace(revision=revision, bound=revision, wrong=wrong))


def _orphans(rules: Rules, state: State) -> Steps:
    """Apply the requests to etcd whose sender does not wait, or drop them if their compare fails."""
    for place, orphan in enumerate(state.orphans):
        rest = state._replace(orphans=state.orphans[:place] + state.orphans[place + 1 :])
        key, revision = state.key, state.revision + 1
        subjects = (orphan.kind.name.lower(), NAMES[orphan.holder])
        match orphan.kind:
            case Sent.CREATE if not key.token and orphan.lease in state.leases:
                made = key._replace(token=revision, mod=revision, lease=orphan.lease, holder=orphan.holder, maker=orphan.mod)
                yield Step(("late", *subjects), rest._replace(revision=revision, key=made))
            case Sent.PUT if key.token and key.mod == orphan.mod:
                yield Step(("late", *subjects), rest._replace(revision=revision, key=key._replace(mod=revision)))
            case Sent.DELETE if key.token and key.mod == orphan.mod:
                yield Step(("late", *subjects), rest._replace(revision=revision, key=NO_KEY))
            case Sent.NOMINATION:
                pass
            case Sent.TRANSFER if key.token and (key.token == orphan.mod or Guard.TRANSFER_TOKEN not in rules.guards):
                wrong = "" if key.token == orphan.mod else "a transfer deposes a leader other than that of the request"
                action = ("transfer", NAMES[orphan.holder], NAMES[key.holder])
                yield Step(action, rest._replace(revision=revision, key=NO_KEY, wrong=wrong))
            case _:
                yield Step(("late-refused", *subjects), rest)


def _leases(rules: Rules, state: State) -> Steps:
    """Expire a lease. If a candidate sends heartbeats for it, this needs a SLOW fault."""
    for lease in state.leases:
        if (
            any(candidate.valid and candidate.session == lease for candidate in state.candidates)
            and Guard.LEASE_ORDER in rules.guards
        ):
            continue
        kept = any(_beats(rules, candidate, lease) for candidate in state.candidates)
        before = rules.after(Fault.SLOW, state) if kept else state
        if before is not None:
            left = before._replace(leases=tuple(item for item in state.leases if item != lease))
            over = left._replace(revision=state.revision + 1, key=NO_KEY) if state.key.lease == lease else left
            yield Step(("expire-slow" if kept else "expire", str(lease)), over, fault=kept)


def _beats(rules: Rules, candidate: Candidate, lease: int) -> bool:
    """Whether the lease is renewed for this candidate."""
    if Guard.BEATEN not in rules.guards and any(item.lease == lease for item in candidate.left):
        return True
    current = candidate.current
    connected = not current.cut and current.phase not in (Phase.NONE, Phase.OVER)
    return connected and lease in (candidate.session, current.lease)


def _cut(after: State) -> Steps:
    for number, candidate in enumerate(after.candidates):
        current = candidate.current
        if current.phase and not current.cut:
            broken = candidate._replace(current=current._replace(cut=True, said=()))
            yield Step(("cut", NAMES[number], server(current.server)), put(after, number, broken), fault=True)


def _restart(rules: Rules, after: State, number: int) -> Step[State]:
    """Restart a server. Its campaigns and streams end, and their requests to etcd stay in flight."""
    orphans = list(after.orphans)
    key, candidates = after.key, []
    for holder, candidate in enumerate(after.candidates):
        for item in (candidate.current, *candidate.left):
            if item.server != number:
                continue
            match item.phase:
                case Phase.CREATING:
                    orphans.append(Orphan(Sent.CREATE, holder, item.lease, number))
                case Phase.TAKING | Phase.ADOPTING:
                    orphans.append(Orphan(Sent.PUT, holder, item.lease, item.mod))
                case Phase.DEPOSING | Phase.CLEARING:
                    orphans.append(Orphan(Sent.DELETE, holder, item.lease, item.mod))
                case Phase.LEADING if Guard.POLITE_DRAIN not in rules.guards and key.mod == item.mod:
                    key = NO_KEY
        current = NO_CAMPAIGN if candidate.current.server == number else candidate.current
        left = tuple(item for item in candidate.left if item.server != number)
        candidates.append(candidate._replace(current=current, left=left))
    wrong = "" if key is after.key else "a stopping server deposes a healthy leader"
    name = "restart" if Guard.POLITE_DRAIN in rules.guards else "drain"
    restarted = after._replace(key=key, candidates=tuple(candidates), orphans=tuple(orphans), wrong=wrong)
    return Step((name, server(number)), restarted, fault=True)
