from pinnace.api.elections_pb2 import Election, Term
from pinnace.api.scalars import to_micro_time
from pinnace.bench.failover import Failover, end_of_term, timeline

OLD = Election(name="scheduler", holder="scheduler-0", token=7)
NEW = Election(name="scheduler", holder="scheduler-2", token=20, since=to_micro_time(5000.01))
HIT = Failover(OLD, hit=100.0, hit_at=5000.0, first_bind=100.03)


def moments(vacancy: float | None) -> list[float]:
    return [round(moment.at, 3) for moment in timeline(HIT, NEW, vacancy)]


def test_failover_timeline_lists_each_event() -> None:
    assert moments(100.005) == [0.005, 0.01, 0.03]
    assert "scheduler-2 is elected with fencing token 20" in timeline(HIT, NEW, 100.005)[1].what


def test_a_vacancy_that_was_too_short_to_be_seen_is_left_out() -> None:
    assert moments(None) == [0.01, 0.03]


def test_a_vacancy_from_before_the_hit_is_not_its_doing() -> None:
    assert moments(99.0) == [0.01, 0.03]


def test_a_vacancy_ends_with_the_election_however_late_the_news_of_it_came() -> None:
    assert moments(100.02) == [0.01, 0.01, 0.03]


def test_the_history_of_the_election_knows_when_the_term_ended() -> None:
    ended = to_micro_time(5000.005)
    before, over = Term(token=3, ended=to_micro_time(4000.0)), Term(token=7, ended=ended)
    assert round(end_of_term([before, over, Term(token=20)], HIT) or 0.0, 3) == 100.005
    assert end_of_term([before, Term(token=7)], HIT) is None
    assert end_of_term([before, Term(token=7, ended=ended, presumed=True)], HIT) is None
    assert end_of_term([before], HIT) is None
