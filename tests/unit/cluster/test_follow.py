from dataclasses import replace

from pinnace.cluster.follow import changes
from pinnace.cluster.view import ProcessStatus

ZERO = ProcessStatus("scheduler", "scheduler-0", 10, "127.0.0.1:1", "127.0.0.1:91", ready=True, leader=True)
ONE = ProcessStatus("scheduler", "scheduler-1", 11, "127.0.0.1:2", "127.0.0.1:92", ready=True, leader=False)


def test_nothing_is_said_when_nothing_changes() -> None:
    assert changes([ZERO, ONE], [ZERO, ONE]) == []


def test_a_failover_is_told_step_by_step() -> None:
    dead = replace(ZERO, pid=0, ready=False, leader=False, problem="not running")
    leads = replace(ONE, leader=True)
    assert changes([ZERO, ONE], [dead, ONE]) == ["scheduler-0 has ended (was pid 10)", "nobody leads, scheduler-0 did before"]
    assert changes([dead, ONE], [dead, leads]) == ["scheduler-1 leads"]
    assert changes([dead, leads], [replace(ZERO, pid=20, leader=False), leads]) == ["scheduler-0 has been started (pid 20)"]


def test_leadership_that_moves_between_two_looks_names_both() -> None:
    assert changes([ZERO, ONE], [replace(ZERO, leader=False), replace(ONE, leader=True)]) == [
        "scheduler-1 leads, scheduler-0 did before"
    ]


def test_readiness_is_told_with_its_reason() -> None:
    ill = replace(ONE, ready=False, problem="informers: behind")
    assert changes([ZERO, ONE], [ZERO, ill]) == ["scheduler-1 is not ready: informers: behind"]
    assert changes([ZERO, ill], [ZERO, ONE]) == ["scheduler-1 is ready"]


def test_the_elections_of_schedulers_and_controllers_are_told_apart() -> None:
    controllers = ProcessStatus("controllers", "controllers-0", 12, "127.0.0.1:3", "127.0.0.1:93", ready=True, leader=True)
    before = [ZERO, ONE, controllers]
    assert changes(before, [replace(ZERO, leader=False), ONE, controllers]) == ["nobody leads, scheduler-0 did before"]
    assert changes(before, [ZERO, ONE, replace(controllers, leader=False)]) == ["nobody leads, controllers-0 did before"]
