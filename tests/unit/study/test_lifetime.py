"""PredictedEnd: the regression, and the placement by predicted ends."""

import pytest

from pinnace.scheduler.config import parse_configuration
from pinnace.study.policies.lifetime import DurationModel
from pinnace.study.recording import Recorder
from pinnace.study.simulation import Simulation
from pinnace.study.trace import HOUR, Machine, Shape, Task, Trace

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: lifetime
  plugins:
    score: {disabled: [{name: "*"}], enabled: [{name: "pinnace.study.policies.lifetime:PredictedEnd"}]}
  pluginConfig: [{name: PredictedEnd, args: {learn: %s}}]
"""
SHORT, LONG = Shape(100), Shape(1000)
PAST = [Task(f"p{n}", LONG if n % 2 else SHORT, n, 20 * HOUR if n % 2 else 0.5 * HOUR) for n in range(40)]


def test_durations_are_predicted_from_the_requests() -> None:
    model = DurationModel()
    model.fit(PAST)
    assert model.predict(SHORT, 0) == pytest.approx(0.5 * HOUR, rel=0.2)
    assert model.predict(LONG, 0) == pytest.approx(20 * HOUR, rel=0.2)
    assert model.predict(SHORT, 0) < model.predict(Shape(300), 0) < model.predict(LONG, 0)


@pytest.mark.parametrize(("learn", "together"), [("true", True), ("false", False)])
def test_task_joins_pods_that_end_at_the_same_time(learn: str, *, together: bool) -> None:
    """A long task on one node, then a short one on another. The next long one prolongs the use of the second node only."""
    machines = [Machine("n0", 1100, 8192), Machine("n1", 2200, 8192)]
    tasks = [
        Task("long", Shape(1000), 0, 20 * HOUR),
        Task("filler", Shape(1150), 1, 0.5 * HOUR),
        Task("short", SHORT, 1200, 0.5 * HOUR),
    ]
    trace = Trace("t", machines, tasks, past=PAST)
    simulation = Simulation(parse_configuration(CONFIGURATION % learn), trace, Recorder(trace, {}, inflated=False))
    simulation.run(until=1300)
    nodes = {uid: running.pod.spec.nodeName for uid, running in simulation.running.items()}
    assert (nodes["short"] == nodes["long"]) is together


def test_unknown_argument_is_refused() -> None:
    configuration = parse_configuration((CONFIGURATION % "true").replace("learn:", "learns:"))
    trace = Trace("t", [Machine("n0", 1000, 1024)], [])
    with pytest.raises(Exception, match="learns: unknown field"):
        Simulation(configuration, trace, Recorder(trace, {}, inflated=False))
