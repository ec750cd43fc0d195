"""The complete model of the election protocol: actions, invariants and recovery."""

from collections.abc import Iterable

from tests.model.campaigns import campaign_steps
from tests.model.candidates import candidate_steps, hear, leave
from tests.model.checker import Step
from tests.model.protocol import NOBODY, Campaign, Phase, State, campaigns, canonical, start
from tests.model.rules import Fault, Guard, Rules, Steps
from tests.model.world import world_steps


class Election:
    """`broken` are the removed guards. With `one_leader`, overlapping terms of two candidates are wrong, although the fence
    makes them harmless. With `steady`, a key that is deleted during the term of its leader is wrong."""

    def __init__(
        self,
        *,
        faults: int = 2,
        kinds: Iterable[Fault] = Fault,
        broken: Iterable[Guard] = (),
        candidates: int = 2,
        servers: int = 2,
        decisions: int = 2,
        one_leader: bool = False,
        steady: bool = False,
    ) -> None:
        self._start = start(candidates, faults, decisions)
        self._rules = Rules(frozenset(Guard) - frozenset(broken), frozenset(kinds), servers)
        self._one_leader = one_leader
        self._steady = steady

    # --- the model

    def initial(self) -> Iterable[State]:
        return (self._start,)

    def canonical(self, state: State) -> State:
        return canonical(
            state, self._rules.servers, dead=not self._rules.guards.issuperset((Guard.TOKEN_COMPARE, Guard.TRANSFER_TOKEN))
        )

    def wrong(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if self._one_leader and sum(candidate.valid for candidate in state.candidates) > 1:
            return "two candidates believe to lead"
        for number, candidate in enumerate(state.candidates):
            key, current = state.key, candidate.current
            if self._steady and candidate.valid and key.token != candidate.token:
                return "a leader has lost its key"
            if candidate.token and key.token == candidate.token and key.holder != number:
                return "a candidate leads with the token of another"
            settled = current.phase in (Phase.WAITING, Phase.LEADING) and not current.said and not current.cut
            if (
                settled
                and candidate.session == current.lease
                and candidate.token != (current.token if current.phase == Phase.LEADING else 0)
            ):
                return "a candidate and its API server permanently disagree on whether it leads"
        return None

    def good(self, state: State) -> bool:
        """Whether a candidate leads, or no candidate is up."""
        return not any(candidate.up for candidate in state.candidates) or any(
            candidate.valid
            and candidate.token == state.key.token
            and candidate.current.phase == Phase.LEADING
            and not candidate.current.cut
            for candidate in state.candidates
        )

    def steps(self, state: State) -> Steps:
        if state.wrong:
            return
        for number, candidate in enumerate(state.candidates):
            yield from candidate_steps(self._rules, state, number)
            for place, campaign in campaigns(candidate):
                yield from campaign_steps(self._rules, state, number, place, campaign)
        yield from world_steps(self._rules, state)

    def ample(self, state: State) -> Iterable[Step[State]]:
        alone = None if state.faults or state.wrong else _alone(self._rules, state)
        return (alone,) if alone else self.steps(state)


def _alone(rules: Rules, state: State) -> Step[State] | None:
    """Return a step that is independent of all others, once no more faults can happen. No other step can prevent or change it,
    and no invariant or other step depends on when it happens. The checker then only explores this step (partial order
    reduction)."""
    for number, candidate in enumerate(state.candidates):
        for place, campaign in campaigns(candidate):
            if _is_alone(rules, state, place, campaign):
                return next(campaign_steps(rules, state, number, place, campaign))
        step = next(hear(rules, state, number, candidate), None)
        if step and not candidate.token and step.action[0] in ("hear-opened", "hear-lost"):
            return step
        if step := next(leave(rules, state, number, candidate), None):
            return step
    return None


def _is_alone(rules: Rules, state: State, place: int, campaign: Campaign) -> bool:
    match campaign.phase:
        case Phase.OPENING:
            return place == NOBODY and not campaign.lease and not campaign.forsaken
        case Phase.RESUMING:
            return campaign.lease not in state.leases
        case Phase.LEADING | Phase.DEPOSING:
            return campaign.mod != state.key.mod and Guard.DEPOSE_COMPARE in rules.guards
        case _:
            return False
