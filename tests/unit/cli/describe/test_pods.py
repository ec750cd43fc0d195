"""What `describe` says of how a pod is to be placed, and of what it waits for."""

from pinnace.cli.describe import pods
from pinnace.cli.describe.text import Rows
from tests.builders import make_pod


def test_readiness_gates_and_how_they_are() -> None:
    pod = make_pod("a").req(cpu="1").readiness_gate("example.com/a").readiness_gate("example.com/b").build()
    pod.status.conditions.add(type="example.com/b", status="False")
    gates = [("example.com/a", "<none>"), ("example.com/b", "False")]
    assert pods.describe_pod(pod)["Readiness Gates"] == Rows(("Type", "Status"), gates)
    assert "Readiness Gates" not in pods.describe_pod(make_pod("b").build())


def test_a_spread_constraint_says_of_which_pods() -> None:
    pod = make_pod("a").spread("b=2,a=1", "zone", skew=3).spread("", "rack").spread("", "host", when="ScheduleAnyway").build()
    pod.spec.topologySpreadConstraints[2].ClearField("labelSelector")
    assert pods.describe_pod(pod)["Topology Spread Constraints"] == [
        "zone:DoNotSchedule when max skew 3 is exceeded for selector a=1,b=2",
        "rack:DoNotSchedule when max skew 1 is exceeded for selector <none>",
        "host:ScheduleAnyway when max skew 1 is exceeded",
    ]
