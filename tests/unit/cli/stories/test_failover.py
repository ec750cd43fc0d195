from pinnace.api.elections_pb2 import Election
from pinnace.api.verbs_pb2 import MODIFIED
from pinnace.cli.verbs.demo import judge_failover
from pinnace.verification.bench.failover import FailoverResult
from pinnace.verification.bench.witness import PodHistory
from tests.unit.bench.test_witness import bound


def failovers(*gaps: float) -> list[FailoverResult]:
    return [FailoverResult(Election(), 10.0, 5000.0, 10.0 + gap) for gap in gaps]


def verdict(history: PodHistory, acknowledged: list[str], *gaps: float, fenced: bool = True) -> list[bool]:
    return [line.good for line in judge_failover(history, acknowledged, failovers(*gaps), [True, fenced])]


def test_good_run_is_judged_good() -> None:
    history = PodHistory()
    history.observe_events([(MODIFIED, bound("a", "n", 5))], 1.0)
    assert verdict(history, ["a"], 0.1, 0.1, 0.1) == [True, True, True, True, True]


def test_each_line_of_the_verdict_can_be_bad() -> None:
    history = PodHistory()
    history.observe_events(
        [(MODIFIED, bound("a", "n", 5)), (MODIFIED, bound("a", "m", 9)), (MODIFIED, bound("b", "m", 9))], 1.0
    )
    history.observe_events([(MODIFIED, bound("c", "m", 4))], 2.0)
    assert verdict(history, ["a", "lost"], 0.1, 2.0, 0.1, fenced=False) == [False, False, False, False, False]


def test_run_with_too_few_failovers_is_bad() -> None:
    assert verdict(PodHistory(), [], 0.1)[-1] is False
