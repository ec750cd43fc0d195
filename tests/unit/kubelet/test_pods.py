"""The pods of a fleet from their binding to their removal, with a fake API."""

from collections.abc import Callable
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.status import Code
from pinnace.api.wellknown import CRASH_ANNOTATION
from pinnace.client.workqueue import REJECTED_MAX_BACKOFF
from pinnace.kubelet.lifecycle import PodPhase
from pinnace.kubelet.runtime.interface import Moment
from pinnace.kubelet.runtime.simulated_runtime import SimulatedRuntime
from pinnace.kubelet.runtime.stages import parse_stages
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.kubelet.fakeapi import FakeApi


def small(name: str) -> PodBuilder:
    return make_pod(name).req(cpu="100m")


async def test_bound_pod_runs_after_one_write(api: FakeApi) -> None:
    api.create(small("a"))
    await api.clock.advance(0.0)
    assert api.history == [("a", "Running")]
    assert api.pod("a").status.podIP.endswith(".2")
    assert api.events == []
    assert api.fleet.unreported_pod_count == 0


async def test_status_has_the_generation_of_the_spec(api: FakeApi) -> None:
    api.create(small("a"))
    await api.clock.advance(0.0)
    api.set_deadline("a", 1_000)
    await api.clock.advance(0.0)
    pod = api.pod("a")
    assert pod.status.observedGeneration == pod.metadata.generation
    assert {condition.observedGeneration for condition in pod.status.conditions if condition.type != "PodScheduled"} == {
        pod.metadata.generation
    }
    assert len(api.history) == 2
    api.touch("a")
    await api.clock.advance(0.0)
    assert len(api.history) == 2


async def test_slow_start_is_reported_as_pending(api: FakeApi) -> None:
    api.create(small("a").declare(start_seconds="5"))
    await api.clock.advance(4.9)
    assert api.phases("a") == ["Pending"]
    await api.clock.advance(0.1)
    assert api.phases("a") == ["Pending", "Running"]


async def test_ended_pod_succeeds_or_fails_by_its_exit_code(api: FakeApi) -> None:
    api.create(small("good").restart_policy("Never").declare(run_seconds="3"))
    api.create(small("bad").restart_policy("Never").declare(run_seconds="3", exit_code="2"))
    await api.clock.advance(3.0)
    assert api.phases("good") == ["Running", "Succeeded"]
    assert api.phases("bad") == ["Running", "Failed"]
    assert api.events == [("bad", "Failed")]


async def test_crashing_container_is_restarted_and_counted(api: FakeApi) -> None:
    api.create(small("a").declare(run_seconds="1", exit_code="1"))
    await api.clock.advance(2.5)
    (container,) = api.pod("a").status.containerStatuses
    assert (container.restartCount, container.state.waiting.reason) == (1, "CrashLoopBackOff")
    await api.clock.advance(10.0)
    (container,) = api.pod("a").status.containerStatuses
    assert (container.restartCount, container.lastState.terminated.exitCode) == (2, 1)
    assert set(api.phases("a")) == {"Running"}


@pytest.mark.parametrize(
    ("builder", "reason"),
    [
        (make_pod("big").req(cpu="5"), "OutOfcpu"),
        (make_pod("big").req(memory="33Gi"), "OutOfmemory"),
        (make_pod("big").req(**{"hugepages-2Mi": "2Mi"}), "OutOfhugepages-2Mi"),
        (make_pod("big").host_port(80), "NodePorts"),
        (make_pod("big").req().node_selector("zone", "a"), "NodeAffinity"),
        (small("big").declare(run_seconds="soon"), "UnexpectedAdmissionError"),
    ],
)
async def test_pod_that_does_not_fit_is_rejected_with_a_reason(api: FakeApi, builder: PodBuilder, reason: str) -> None:
    api.create(make_pod("first").host_port(80))
    api.create(builder)
    await api.clock.advance(0.0)
    status = api.pod("big").status
    assert (status.phase, status.reason) == ("Failed", reason)
    assert status.message.startswith("Pod was rejected: ")
    assert api.events == [("big", reason)]


async def test_pods_beyond_the_capacity_of_the_node_are_rejected(api: FakeApi) -> None:
    await api.start_fleet(make_node("n").capacity(cpu=1, pods=2).build())
    for name in "abc":
        api.create(make_pod(name).req(cpu="1m"))
    await api.clock.advance(0.0)
    assert [api.pod(name).status.reason for name in "abc"] == ["", "", "OutOfpods"]


async def test_ended_or_deleted_pod_frees_its_resources(api: FakeApi) -> None:
    api.create(make_pod("job").req(cpu="4").restart_policy("Never").declare(run_seconds="1"))
    await api.clock.advance(1.0)
    api.create(make_pod("next").req(cpu="4"))
    await api.clock.advance(0.0)
    assert api.phases("next") == ["Running"]
    api.remove("next")
    api.create(make_pod("last").req(cpu="4"))
    await api.clock.advance(0.0)
    assert api.phases("last") == ["Running"]
    assert api.pod("last").status.podIP == api.pod("job").status.podIP


async def test_resize_changes_the_used_resources_of_the_node(api: FakeApi) -> None:
    """The scheduler counts the new amounts at once. A kubelet that counted the old ones would reject pods."""
    api.create(make_pod("a").req(cpu="4"))
    await api.clock.advance(0.0)
    address = api.pod("a").status.podIP
    api.resize("a", "1")
    api.create(make_pod("b").req(cpu="3"))
    await api.clock.advance(0.0)
    assert (api.phases("b"), api.pod("a").status.podIP) == (["Running"], address)
    api.remove("a")
    api.resize("b", "4")
    api.create(make_pod("c").req(cpu="100m"))
    await api.clock.advance(0.0)
    assert api.pod("c").status.reason == "OutOfcpu"
    api.remove("b")
    api.create(make_pod("d").req(cpu="4"))
    await api.clock.advance(0.0)
    assert api.phases("d") == ["Running"]


async def test_node_with_raised_capacity_admits_larger_pods(api: FakeApi) -> None:
    api.fleet.set_node(make_node("n").capacity(cpu=8, pods=10).build())
    api.create(make_pod("a").req(cpu="8"))
    await api.clock.advance(0.0)
    assert api.phases("a") == ["Running"]


async def test_deleted_pod_is_stopped_reported_and_then_removed(api: FakeApi) -> None:
    api.create(small("a").declare(stop_seconds="5"))
    await api.clock.advance(1.0)
    api.delete("a")
    await api.clock.advance(4.9)
    assert api.phases("a") == ["Running"]
    assert api.events == [("a", "Killing")]
    await api.clock.advance(0.1)
    assert api.phases("a") == ["Running", "Succeeded", "deleted"]
    assert len(api.fleet) == 0


async def test_container_is_killed_at_the_end_of_the_grace_period(api: FakeApi) -> None:
    api.create(small("a").declare(stop_seconds="60"))
    await api.clock.advance(1.0)
    api.delete("a", grace=30)
    await api.clock.advance(1.0)
    api.delete("a", grace=5)
    await api.clock.advance(4.9)
    assert api.phases("a") == ["Running"]
    await api.clock.advance(0.1)
    assert api.phases("a") == ["Running", "Failed", "deleted"]


async def test_failed_stop_is_retried_with_the_remaining_grace_period(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: on a full disk each sync restarted the grace period, and syncs were a minute apart."""
    api.create(small("a").declare(stop_seconds=60))
    await api.clock.advance(5.0)
    stop, graces = api.runtime.stop, list[float]()

    def full(uid: str, container: str, grace: float, now: Moment) -> None:
        graces.append(grace)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(api.runtime, "stop", full)
    api.delete("a", grace=10)
    await api.clock.advance(6.0)
    assert len(graces) > 4 and graces[0] == 10.0 and graces[-1] < 5.0
    monkeypatch.setattr(api.runtime, "stop", stop)
    await api.clock.advance(6.0)
    assert not api.pods


async def test_pod_deleted_before_its_first_sync_fails(api: FakeApi) -> None:
    api.create(small("young"))
    api.delete("young")
    await api.clock.advance(0.0)
    assert api.phases("young") == ["Failed", "deleted"]


async def test_pod_recreated_with_the_same_name_starts(api: FakeApi) -> None:
    api.create(small("a"))
    await api.clock.advance(0.0)
    api.remove("a")
    api.create(small("a").uid("another"))
    await api.clock.advance(0.0)
    assert api.phases("a") == ["Running", "Running"]
    assert len(api.fleet) == 1


async def test_conflicting_report_is_repeated_on_the_newer_version(api: FakeApi) -> None:
    api.deaf = True
    api.create(small("a"))
    api.fleet.handle_deltas(api.undelivered())
    api.touch("a")  # the fleet has not received it yet
    await api.clock.advance(0.0)
    assert api.phases("a") == []
    api.deliver()
    await api.clock.advance(0.0)
    assert api.phases("a") == ["Running"]
    assert "touched" in api.pod("a").metadata.labels


async def test_pod_accepted_by_another_process_continues_from_its_status(api: FakeApi) -> None:
    api.deaf = True
    api.create(small("a").declare(start_seconds="5"))
    api.fleet.handle_deltas(api.undelivered())
    api.report_by_another("a", PodPhase.RUNNING)  # the fleet has not received it yet
    started = api.pod("a").status.startTime.seconds
    await api.clock.advance(0.0)
    assert api.phases("a") == []
    api.deliver()
    await api.clock.advance(6.0)
    assert set(api.phases("a")) <= {"Running"}
    assert api.pod("a").status.startTime.seconds == started
    assert api.fleet.unreported_pod_count == 0


async def test_pod_ended_by_another_process_keeps_its_status(api: FakeApi) -> None:
    api.create(small("a"))
    await api.clock.advance(0.0)
    api.deaf = True
    api.delete("a")
    api.report_by_another("a", PodPhase.FAILED)
    api.deliver()
    await api.clock.advance(60.0)
    assert api.phases("a") == ["Running", "deleted"]
    assert len(api.fleet) == 0


async def test_pod_marked_not_ready_by_a_controller_becomes_ready_again(api: FakeApi) -> None:
    api.create(small("p"))
    await api.clock.advance(1.0)
    assert api.is_ready("p")
    api.say_not_ready("p")
    await api.clock.advance(1.0)
    assert api.is_ready("p")


async def test_pod_marked_not_ready_during_a_report_becomes_ready_again(api: FakeApi) -> None:
    api.answers.clear()
    api.create(small("p"))
    await api.clock.advance(1.0)
    api.say_not_ready("p")
    api.answers.set()
    await api.clock.advance(1.0)
    assert api.is_ready("p")


async def test_pod_marked_not_ready_while_the_kubelet_is_down_becomes_ready_again(api: FakeApi) -> None:
    api.create(small("p"))
    await api.clock.advance(1.0)
    await api.stop_fleet()
    api.say_not_ready("p")
    await api.start_fleet()
    await api.clock.advance(1.0)
    assert api.is_ready("p")


async def test_consecutive_reports_do_not_wait_for_watch_events(api: FakeApi) -> None:
    api.create(small("a").restart_policy("Never").declare(start_seconds="1", run_seconds="1"))
    await api.clock.advance(0.0)
    api.deaf = True
    await api.clock.advance(2.0)
    assert api.phases("a") == ["Pending", "Running", "Succeeded"]
    api.deliver()
    await api.clock.advance(60.0)
    assert api.phases("a") == ["Pending", "Running", "Succeeded"]


async def test_reports_are_kept_while_no_api_server_is_available(api: FakeApi) -> None:
    api.create(small("job").restart_policy("Never").declare(start_seconds="1", run_seconds="1"))
    api.create(small("gone"))
    await api.clock.advance(0.0)
    api.down = True
    api.delete("gone")
    await api.clock.advance(30.0)
    assert api.phases("job") == ["Pending"]
    assert api.fleet.unreported_pod_count == 2
    api.down = False
    await api.clock.advance(30.0)
    assert api.phases("job") == ["Pending", "Succeeded"]
    assert api.phases("gone") == ["Running", "Succeeded", "deleted"]


@pytest.mark.parametrize("code", [Code.INTERNAL, Code.PERMISSION_DENIED, Code.INVALID_ARGUMENT])
@pytest.mark.parametrize("verb", ["UpdateStatus", "Delete"])
async def test_rejected_status_or_deletion_is_retried(api: FakeApi, verb: str, code: Code) -> None:
    """INTERNAL stands for an unavailable webhook. The other codes are denials."""
    api.refuses[verb] = code
    api.create(small("a").restart_policy("Never"))
    api.delete("a")
    await api.clock.advance(1.0)
    assert "deleted" not in api.phases("a")
    api.refuses.clear()
    await api.clock.advance(REJECTED_MAX_BACKOFF)
    assert api.phases("a") == ["Failed", "deleted"]


async def test_restarted_process_does_not_change_running_pods(api: FakeApi) -> None:
    api.create(make_pod("a").req(cpu="3"))
    api.create(small("job").restart_policy("Never").declare(run_seconds="60"))
    await api.clock.advance(10.0)
    before = dict(zip(api.pods, (pod.SerializeToString() for pod in api.pods.values()), strict=True))
    await api.start_fleet()
    await api.clock.advance(10.0)
    assert {uid: pod.SerializeToString() for uid, pod in api.pods.items()} == before
    api.create(make_pod("b").req(cpu="2"))  # the resources of adopted pods stay allocated
    await api.clock.advance(40.0)
    assert api.pod("b").status.reason == "OutOfcpu"
    assert api.phases("job") == ["Running", "Succeeded"]


async def test_restarted_process_readmits_accepted_pods_before_new_ones(api: FakeApi) -> None:
    api.create(make_pod("z-accepted").req(cpu="3"))
    await api.clock.advance(0.0)
    await api.stop_fleet()
    new = api.create(make_pod("a-new").req(cpu="3"))
    api.pods = {new.metadata.uid: new, **api.pods}  # the new pod is listed first
    await api.start_fleet()
    assert api.pod("a-new").status.reason == "OutOfcpu"
    assert api.phases("z-accepted") == ["Running"]


async def test_oldest_of_missed_pods_is_admitted_first(api: FakeApi) -> None:
    api.deaf = True
    api.create(make_pod("a-younger").created(200).req(cpu="3"))  # listed first
    api.create(make_pod("b-older").created(100).req(cpu="3"))
    api.relist()
    await api.clock.advance(1.0)
    assert api.phases("b-older") == ["Running"]
    assert api.pod("a-younger").status.reason == "OutOfcpu"


async def test_restarted_process_completes_a_deletion(api: FakeApi) -> None:
    api.create(small("a").declare(stop_seconds="60"))
    await api.clock.advance(0.0)
    api.delete("a")
    await api.clock.advance(1.0)
    await api.start_fleet()
    await api.clock.advance(30.0)
    assert api.phases("a") == ["Running", "Failed", "deleted"]


async def test_restarted_process_ends_containers_of_finished_pods(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, the pod garbage collector failed the pod, and a finalizer keeps it."""
    gone = api.create(small("a"))
    api.create(small("b"))
    await api.clock.advance(1.0)
    await api.stop_fleet()
    gone.status.phase = "Failed"
    ended: list[str] = []
    monkeypatch.setattr(SimulatedRuntime, "kill_leftovers", lambda runtime, uid: ended.append(uid))
    await api.start_fleet()
    assert ended == [gone.metadata.uid]


async def test_pods_of_foreign_and_dropped_nodes_are_ignored(api: FakeApi) -> None:
    api.create(small("elsewhere"), node="other")
    api.create(small("here").declare(start_seconds="5"))
    await api.clock.advance(0.0)
    api.fleet.drop_nodes({"n"})
    await api.clock.advance(10.0)
    assert api.history == [("here", "Pending")]
    assert len(api.fleet) == 0


async def test_pods_missing_from_a_new_watch_are_forgotten(api: FakeApi) -> None:
    api.create(small("kept"))
    api.create(make_pod("lost").req(cpu="3"))
    await api.clock.advance(0.0)
    api.deaf = True
    api.remove("lost")
    api.relist()
    assert len(api.fleet) == 1
    api.create(make_pod("next").req(cpu="3"))
    await api.clock.advance(0.0)
    assert api.phases("next") == ["Running"]


async def test_status_of_init_containers_is_reported(api: FakeApi) -> None:
    api.create(small("a").init().declare(run_seconds__i0=3))
    await api.clock.advance(2.0)
    (init,) = api.pod("a").status.initContainerStatuses
    assert init.state.HasField("running")
    await api.clock.advance(1.0)
    assert api.phases("a") == ["Pending", "Running"]


async def test_probe_without_a_change_is_not_reported(api: FakeApi) -> None:
    builder = small("a").declare(ready_after_seconds=15, unready_after_seconds=45)
    builder.main_containers()[0].readinessProbe.handler.exec.command.append("true")
    api.create(builder)
    await api.clock.advance(10.0)
    assert not any(container_status.ready for container_status in api.pod("a").status.containerStatuses)
    await api.clock.advance(90.0)
    assert len(api.history) == 3, "one report each for running, ready and unready"
    assert [reason for _, reason in api.events] == ["Unhealthy", "Unhealthy"]


async def test_readiness_gate_opens_with_its_condition(api: FakeApi) -> None:
    builder = small("a").readiness_gate("example.com/in-rotation")
    api.create(builder)
    await api.clock.advance(0.0)

    def ready() -> tuple[str, str, str]:
        (result,) = (condition for condition in api.pod("a").status.conditions if condition.type == "Ready")
        return result.status, result.reason, result.message

    message = 'corresponding condition of pod readiness gate "example.com/in-rotation" does not exist.'
    assert ready() == ("False", "ReadinessGatesNotReady", message)
    api.set_condition("a", "example.com/in-rotation", "True")
    await api.clock.advance(0.0)
    assert ready() == ("True", "", "")


async def test_pod_past_its_active_deadline_fails_with_a_reason(api: FakeApi) -> None:
    api.create(small("a").deadline(20).declare(stop_seconds=2))
    await api.clock.advance(22.0)
    status = api.pod("a").status
    assert (status.phase, status.reason) == ("Failed", "DeadlineExceeded")
    assert status.containerStatuses[0].state.terminated.reason == "Completed"
    assert api.events == [("a", "DeadlineExceeded"), ("a", "Killing")]


@pytest.mark.parametrize("builder", [small("a"), small("a").deadline(300), small("a").readiness_gate("example.com/open")])
async def test_active_deadline_may_be_set_or_shortened_while_running(api: FakeApi, builder: PodBuilder) -> None:
    api.create(builder)
    await api.clock.advance(10.0)
    api.set_deadline("a", 20)
    await api.clock.advance(9.9)
    assert api.pod("a").status.phase == "Running"
    await api.clock.advance(0.1)
    assert (api.pod("a").status.phase, api.pod("a").status.reason) == ("Failed", "DeadlineExceeded")
    assert api.events == [("a", "DeadlineExceeded"), ("a", "Killing")]


async def test_deadline_set_in_the_past_fails_the_pod_at_once(api: FakeApi) -> None:
    api.create(small("a"))
    await api.clock.advance(10.0)
    api.set_deadline("a", 5)
    await api.clock.advance(0.0)
    assert api.pod("a").status.reason == "DeadlineExceeded"


async def test_each_crash_is_reported_once(api: FakeApi) -> None:
    api.create(small("a").declare(run_seconds="1", exit_code="1"))
    await api.clock.advance(20.0)
    assert api.events == [("a", "BackOff")] * 2


async def test_annotations_override_stages(api: FakeApi) -> None:
    stage = "{apiVersion: pinnace.io/v1alpha1, kind: Stage, spec: {resourceRef: {kind: Pod}, next: %s, %s}}"
    exits = stage % ("{exit: {code: 3}}", "delay: {durationMilliseconds: 5000}, selector: {matchLabels: {app: job}}")
    starts = stage % ("{start: {}}", "delay: {durationMilliseconds: 1000}")
    await api.start_fleet(stages=parse_stages(f"{exits}\n---\n{starts}", "test.yaml"))
    api.create(small("job").label("app", "job").restart_policy("Never").init())
    api.create(small("declared").label("app", "job").restart_policy("Never").declare(run_seconds="60"))
    api.create(small("other"))
    await api.clock.advance(0.9)
    assert {name for name, phase in api.history if phase == "Running"} == set()
    await api.clock.advance(6.5)
    assert api.phases("job")[-1] == "Failed", "the init container succeeds"
    (container,) = api.pod("job").status.containerStatuses
    assert container.state.terminated.exitCode == 3
    assert api.phases("declared")[-1] == "Running"
    assert api.phases("other")[-1] == "Running"


class TestPodThatTriggersABug:
    """A bug that affects one pod does not affect the fleet and its other pods."""

    @pytest.fixture
    def bug(self, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Plants a bug in a method of the runtime for pod "odd", until `monkeypatch.undo()`."""
        api.trips = True

        def plant(method: str) -> None:
            sound = getattr(SimulatedRuntime, method)

            def failing(runtime: SimulatedRuntime, pod: Pod | str, *others: Any) -> Any:
                if "odd" in (pod.metadata.uid if isinstance(pod, Pod) else pod):
                    raise ValueError("nobody thought of this")
                return sound(runtime, pod, *others)

            monkeypatch.setattr(SimulatedRuntime, method, failing)

        return plant

    @pytest.mark.parametrize("method", ["prepare_pod", "observe_containers", "start"])
    async def test_runs_once_the_bug_is_gone(
        self, api: FakeApi, bug: Callable[[str], None], method: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bug(method)
        api.create(make_pod("odd").req(cpu="2"))
        api.create(small("a"))
        await api.clock.advance(100.0)
        assert api.history == [("a", "Running")]
        assert set(api.events) == {("odd", "FailedSync")}
        assert 5 <= len(api.events) <= 15, "the retries back off"
        monkeypatch.undo()
        await api.clock.advance(REJECTED_MAX_BACKOFF)
        api.create(make_pod("b").req(cpu="1900m"))
        api.create(make_pod("c").req(cpu="1m"))
        await api.clock.advance(0.0)
        assert api.history == [("a", "Running"), ("odd", "Running"), ("b", "Running"), ("c", "Failed")], (
            "the pod is counted once"
        )

    async def test_can_be_deleted(self, api: FakeApi, bug: Callable[[str], None]) -> None:
        bug("start")
        bug("remove")
        api.create(make_pod("odd").req(cpu="4"))
        await api.clock.advance(1.0)
        api.remove("odd")
        api.create(make_pod("a").req(cpu="4"))
        await api.clock.advance(REJECTED_MAX_BACKOFF)
        assert api.phases("a") == ["Running"], "the removed pod uses no resources"
        assert len(api.fleet) == 1

    async def test_is_counted_by_the_next_process_and_adopted_later(
        self, api: FakeApi, bug: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        api.create(make_pod("odd").req(cpu="4"))
        await api.clock.advance(1.0)
        bug("adopt_pod")
        await api.start_fleet()
        api.create(make_pod("a").req(cpu="1"))
        await api.clock.advance(10.0)
        assert api.pod("a").status.reason == "OutOfcpu"
        monkeypatch.undo()
        await api.clock.advance(REJECTED_MAX_BACKOFF)
        api.delete("odd")
        await api.clock.advance(1.0)
        assert api.phases("odd") == ["Running", "Succeeded", "deleted"]

    async def test_runs_if_its_crash_annotation_fails(self, api: FakeApi, bug: Callable[[str], None]) -> None:
        bug("crash_container")
        api.create(make_pod("odd").req(cpu="4").annotation(CRASH_ANNOTATION + "c0", "0 1"))
        await api.clock.advance(1.0)
        api.touch("odd")
        api.create(small("a"))
        await api.clock.advance(1.0)
        assert api.phases("odd") == ["Running"]
        assert ("odd", "FailedSync") in api.events
        assert api.pod("a").status.reason == "OutOfcpu", "the pod is counted"
