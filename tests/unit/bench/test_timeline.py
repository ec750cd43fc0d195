from pinnace.api.elections_pb2 import Election, Term
from pinnace.api.scalars import to_micro_time
from pinnace.verification.bench.failover import FailoverResult, build_timeline, find_end_of_term

OLD = Election(name="scheduler", holder="scheduler-0", token=7)
NEW = Election(name="scheduler", holder="scheduler-2", token=20, since=to_micro_time(5000.01))
HIT = FailoverResult(OLD, hit=100.0, hit_at=5000.0, first_bind=100.03)


def moments(vacancy: float | None) -> list[float]:
    return [round(moment.at, 3) for moment in build_timeline(HIT, NEW, vacancy)]


def test_failover_timeline_lists_each_event() -> None:
    assert moments(100.005) == [0.005, 0.01, 0.03]
    assert "scheduler-2 is elected with fencing token 20" in build_timeline(HIT, NEW, 100.005)[1].what


def test_unobserved_vacancy_is_left_out() -> None:
    assert moments(None) == [0.01, 0.03]


def test_vacancy_before_the_hit_is_left_out() -> None:
    assert moments(99.0) == [0.01, 0.03]


def test_late_vacancy_is_limited_by_the_election() -> None:
    assert moments(100.02) == [0.01, 0.01, 0.03]


def test_end_of_term_is_taken_from_the_term_history() -> None:
    ended = to_micro_time(5000.005)
    before, over = Term(token=3, ended=to_micro_time(4000.0)), Term(token=7, ended=ended)
    assert round(find_end_of_term([before, over, Term(token=20)], HIT) or 0.0, 3) == 100.005
    assert find_end_of_term([before, Term(token=7)], HIT) is None
    assert find_end_of_term([before, Term(token=7, ended=ended, presumed=True)], HIT) is None
    assert find_end_of_term([before], HIT) is None
