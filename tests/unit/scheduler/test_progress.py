"""When a leader does not go on with its work."""

from pinnace.scheduler.scheduler import PROGRESS_TIMEOUT, LeaderProgress

SLOW = {("X", "PreBind"): (256, 40.0)}


def test_leader_without_pods_goes_on() -> None:
    progress = LeaderProgress()
    for now in range(100):
        assert progress.find_stall(False, {}, float(now)) is None
    assert progress.find_stall(True, {}, 100.0) is None, "a pod has just come"


def test_leader_that_makes_attempts_goes_on() -> None:
    progress = LeaderProgress()
    for now in range(100):
        progress.record_attempt()
        assert progress.find_stall(True, {}, float(now)) is None


def test_scheduler_without_progress_is_stuck_if_pods_wait() -> None:
    progress = LeaderProgress()
    progress.begin_term(0.0)
    progress.doing = "waits for room"
    assert progress.find_stall(True, {}, PROGRESS_TIMEOUT - 0.1) is None
    said = progress.find_stall(True, SLOW, PROGRESS_TIMEOUT)
    assert said is not None
    assert said.endswith('although pods are pending: the scheduling loop waits for room, for plugin "X" in PreBind (256 pods)')


def test_extenders_have_the_time_that_is_configured() -> None:
    progress = LeaderProgress()
    progress.begin_term(0.0)
    progress.extend_limit("asks http://x about pod a", 25.0)
    assert progress.find_stall(True, {}, PROGRESS_TIMEOUT + 24.0) is None
    assert progress.find_stall(True, {}, PROGRESS_TIMEOUT + 26.0) is not None
    progress.record_attempt()
    assert progress.find_stall(True, {}, 100.0) is None


def test_attempts_that_all_end_in_what_no_plugin_should_do_are_no_work() -> None:
    progress = LeaderProgress()
    progress.record_failure("no", 1.0)
    progress.record_attempt()
    assert progress.find_stall(True, {}, 2.0) is None, "it may be that one pod"
    progress.record_failure("no again", 3.0)
    assert progress.find_stall(True, {}, 4.0) == "each of 2 attempts in 3 s has failed: no again"
    progress.record_success()
    assert progress.find_stall(True, {}, 5.0) is None
