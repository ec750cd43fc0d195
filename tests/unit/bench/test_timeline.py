from pinnace.api.elections_pb2 import Election
from pinnace.bench.leaders import Failover
from pinnace.bench.timeline import ElectionLog, timeline

HIT = Failover(Election(name="scheduler", holder="scheduler-0", token=7), new_token=20, hit=100.0, first_bind=100.03)


def test_a_failover_is_told_moment_by_moment() -> None:
    log = ElectionLog()
    log.observe(7, "scheduler-0", 99.9)
    log.observe(0, "", 100.005)
    log.observe(0, "", 100.007)
    log.observe(20, "scheduler-2", 100.01)
    log.observe(20, "scheduler-2", 100.02)
    told = timeline(HIT, log)
    assert [round(moment.at, 3) for moment in told] == [0.005, 0.01, 0.03]
    assert "scheduler-2 is elected; its fencing token is 20" in told[1].what


def test_what_was_too_short_to_be_seen_is_left_out() -> None:
    log = ElectionLog()
    log.observe(7, "scheduler-0", 99.9)
    assert [round(moment.at, 3) for moment in timeline(HIT, log)] == [0.03]


def test_a_vacancy_from_before_the_hit_is_not_its_doing() -> None:
    log = ElectionLog()
    log.observe(0, "", 99.0)
    assert len(timeline(HIT, log)) == 1
