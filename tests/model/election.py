"""The model of the election protocol, put together: its actions, its invariants, and what it recovers to."""

from collections.abc import Iterable

from tests.model.campaigns import campaign_steps
from tests.model.candidates import candidate_steps, hear, leave
from tests.model.checker import Step
from tests.model.protocol import NOBODY, Campaign, Phase, State, campaigns, canonical, start
from tests.model.rules import Fault, Guard, Rules, Steps
from tests.model.world import world_steps


class Election:
    """`broken`: guards that are taken away. `one_leader`: also wrong is what the fence makes harmless, that two candidates
    believe to lead. `steady`: also wrong is
    that the key goes while a candidate believes to lead by it."""

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
                return "a candidate and its API server do not agree on whether it leads, and nothing will tell them"
        return None

    def good(self, state: State) -> bool:
        """Somebody leads, or there is nobody to lead."""
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
    """Once no more faults can happen: a step that nothing else can prevent or change, and that no invariant and no other step
    can tell from having happened later. Then it is enough to look at what comes after it (partial order reduction)."""
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
