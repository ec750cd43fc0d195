"""The pods that a job creates and deletes. Each pod is counted once."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.batch_v1_pb2 import Job, JobStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.scalars import to_time
from pinnace.api.verbs_pb2 import ADDED
from pinnace.client.informer import Delta, Index
from pinnace.controllers import job_status
from pinnace.controllers.informers import LabelIndex
from pinnace.controllers.job import (
    JobController,
    JobPlan,
    plan_job_sync,
    seconds_until_replacement,
)
from pinnace.controllers.job_indexes import (
    LONGEST_BACKOFF,
    set_pod_index,
)
from pinnace.controllers.job_status import (
    FINALIZER,
    MAX_UNCOUNTED,
    count_pods,
    find_true_condition,
    has_tracking_finalizer,
    without_tracking_finalizer,
)
from tests.unit.controllers.jobs import NOW, pod, pods
from tests.workloads import make_job, named


def said(status: JobStatus) -> dict[str, str]:
    return {item.type: item.reason for item in status.conditions if item.status == "True"}


# --- number of pods


@pytest.mark.parametrize(
    ("spec", "phases", "create", "delete"),
    [
        ({}, [], 1, 0),
        ({"parallelism": 3, "completions": 5}, [], 3, 0),
        ({"parallelism": 3, "completions": 5}, ["Succeeded"] * 3, 2, 0),
        ({"parallelism": 3, "completions": 5}, ["Succeeded"] * 4 + ["Running"] * 2, 0, 1),
        ({"parallelism": 1, "completions": 5}, ["Running"] * 3, 0, 2),
        ({"parallelism": 3}, ["Running"], 2, 0),
        ({"parallelism": 3}, ["Succeeded", "Running"], 0, 0),
        ({"parallelism": 0, "completions": 5}, ["Running"], 0, 1),
    ],
    ids=["one", "parallel", "remaining", "completed", "scaled down", "work queue", "empty work queue", "zero"],
)
def test_active_pods_match_parallelism_and_remaining_completions(
    spec: dict[str, int], phases: list[str], create: int, delete: int
) -> None:
    job = make_job("j", **spec)
    wanted = plan_job_sync(job, pods(job, *phases), NOW)
    assert (len(wanted.create), len(wanted.delete)) == (create, delete)
    assert all(FINALIZER in item.metadata.finalizers for item in wanted.create)


def test_failed_pod_is_replaced_with_exponential_backoff() -> None:
    job = make_job("j")
    first = [pod(job, "a", "Failed", ended=NOW)]
    wanted = plan_job_sync(job, first, NOW + 4)
    assert (wanted.create, wanted.again) == ([], 6.0)
    assert len(plan_job_sync(job, first, NOW + 10).create) == 1
    again = [*first, pod(job, "b", "Failed", ended=NOW + 20), pod(job, "c", "Failed", ended=NOW + 50)]
    assert seconds_until_replacement(again, NOW + 50) == 40.0
    assert seconds_until_replacement([*again, pod(job, "d", "Succeeded", ended=NOW + 60)], NOW + 61) == 0.0
    many = [pod(job, str(index), "Failed", ended=NOW) for index in range(30)]
    assert seconds_until_replacement(many, NOW) == LONGEST_BACKOFF


def test_backoff_starts_at_the_end_of_the_failed_pod() -> None:
    """A node may have rejected the pod, the pod may have ended before its container started, or a sidecar may have ended
    last.
    """
    job = make_job("j")
    refused = pod(job, "refused", "Failed")
    refused.metadata.creationTimestamp.seconds = int(NOW)
    late = pod(job, "late", "Failed")
    late.status.containerStatuses.add(name="c0").state.terminated.exitCode = 137
    late.status.conditions.add(type="Ready", status="False").lastTransitionTime.seconds = int(NOW)
    with_sidecar = pod(job, "with-sidecar", "Failed", ended=NOW - 20)
    with_sidecar.status.initContainerStatuses.add(name="s").state.terminated.finishedAt.seconds = int(NOW)
    assert [seconds_until_replacement([item], NOW) for item in (refused, late, with_sidecar)] == [10.0] * 3


@pytest.mark.parametrize(("policy", "create"), [("TerminatingOrFailed", 1), ("Failed", 0)])
def test_terminating_pod_is_replaced_by_replacement_policy(policy: str, create: int) -> None:
    job = make_job("j", podReplacementPolicy=policy)
    wanted = plan_job_sync(job, [pod(job, "a", terminating=True)], NOW + 1)
    assert (len(wanted.create), len(wanted.status.uncountedTerminatedPods.failed)) == (create, create)
    unbound = pod(job, "b", terminating=True)
    unbound.spec.nodeName = ""
    assert count_pods(job, [unbound]).failed == 1


# --- completion and failure


def look(job: Job, own: list[Pod], now: float = NOW) -> JobPlan:
    """Plan the changes of the job and store its status, as the controller does."""
    wanted = plan_job_sync(job, own, now)
    job.status.CopyFrom(wanted.status)
    return wanted


def test_job_is_complete_once_its_successful_pods_are_counted() -> None:
    job = make_job("j", parallelism=2, completions=2)
    own = pods(job, "Succeeded", "Succeeded", "Running")
    first = look(job, own)
    assert said(job.status) == {"SuccessCriteriaMet": "CompletionsReached"}
    assert (named(first.delete), named(first.release)) == (["p2"], ["p0", "p1"])
    own = [without_tracking_finalizer(item) for item in own[:2]]
    look(job, own, NOW + 5)
    assert said(job.status) == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert (job.status.succeeded, job.status.completionTime.seconds) == (2, NOW + 5)


def test_completion_time_is_not_before_the_start_time() -> None:
    """The controller that started the job may have had another clock."""
    job = make_job("j")
    look(job, [], NOW + 60)
    look(job, pods(job, "Succeeded"), NOW)
    look(job, [], NOW + 5)
    assert job.status.completionTime == job.status.startTime


@pytest.mark.parametrize(
    ("spec", "phases", "restarts", "late", "reason"),
    [
        ({"backoffLimit": 1}, ["Failed"] * 2, 0, 0.0, "BackoffLimitExceeded"),
        ({"backoffLimit": 2}, ["Failed"] * 2, 0, 0.0, ""),
        ({"backoffLimit": 3}, ["Running"], 3, 0.0, "BackoffLimitExceeded"),
        ({"backoffLimit": 3}, ["Running"], 2, 0.0, ""),
        ({"backoffLimit": 0}, ["Running"], 0, 0.0, ""),
        ({"activeDeadlineSeconds": 60}, ["Running"], 0, 60.0, "DeadlineExceeded"),
        ({"activeDeadlineSeconds": 60}, ["Running"], 0, 59.0, ""),
    ],
)
def test_job_fails_by_failed_pods_restarts_or_deadline(
    spec: dict[str, int], phases: list[str], restarts: int, late: float, reason: str
) -> None:
    job = make_job("j", **spec)
    if restarts or spec == {"backoffLimit": 0}:
        job.spec.template.spec.restartPolicy = "OnFailure"
    own = pods(job, *phases)
    own[0].status.containerStatuses.add(name="c0", restartCount=restarts)
    look(job, own)
    wanted = look(job, own, NOW + late)
    assert said(job.status).get("FailureTarget", "") == reason
    assert bool(wanted.delete) == (bool(reason) and "Running" in phases)
    if reason:
        look(job, [], NOW + late + 1)
        assert said(job.status)["Failed"] == reason


@pytest.mark.parametrize(("limit", "failed"), [(6, True), (7, False)])
def test_restarts_of_all_containers_count_as_failures(limit: int, failed: bool) -> None:
    job = make_job("j", parallelism=2, completions=2, backoffLimit=limit)
    job.spec.template.spec.restartPolicy = "OnFailure"
    own = pods(job, "Running", "Pending")
    for name in ("c0", "c1"):
        own[0].status.containerStatuses.add(name=name, restartCount=2)
    own[0].status.initContainerStatuses.add(name="i0", restartCount=1)
    own[1].status.initContainerStatuses.add(name="i0", restartCount=1)
    look(job, own)
    assert (said(job.status).get("FailureTarget") == "BackoffLimitExceeded") == failed


@pytest.mark.parametrize("policy", ["TerminatingOrFailed", "Failed"])
def test_pods_deleted_by_a_failed_job_count_as_failed(policy: str) -> None:
    job = make_job("j", parallelism=3, activeDeadlineSeconds=60, podReplacementPolicy=policy)
    own = [*pods(job, "Running", "Pending", "Succeeded"), pod(job, "ending", terminating=True)]
    look(job, [])
    wanted = look(job, own, NOW + 60)
    assert (said(job.status), named(wanted.delete)) == ({"FailureTarget": "DeadlineExceeded"}, ["p0", "p1"])
    assert set(named([*wanted.release, *wanted.delete])) == set(named(own))
    look(job, [without_tracking_finalizer(item) for item in own[2:]], NOW + 61)
    assert (job.status.succeeded, job.status.failed, "Failed" in said(job.status)) == (1, 3, False)
    look(job, [], NOW + 90)
    assert (job.status.failed, said(job.status)["Failed"]) == (3, "DeadlineExceeded")


@pytest.mark.parametrize("suspend", [False, True])
def test_pods_deleted_by_completion_or_suspension_do_not_count_as_failed(suspend: bool) -> None:
    job = make_job("j", parallelism=2, completions=1, suspend=suspend)
    own = pods(job, "Running", "Running") if suspend else pods(job, "Succeeded", "Running")
    ended = [without_tracking_finalizer(item) for item in own if item not in look(job, own).delete]
    look(job, ended)
    assert job.status.failed == 0


def test_job_is_synced_again_at_its_deadline() -> None:
    job = make_job("j", activeDeadlineSeconds=60)
    look(job, [])
    assert plan_job_sync(job, pods(job, "Running"), NOW + 20).again == 40.0


def test_suspended_job_has_no_pods_and_restarts_its_deadline_when_resumed() -> None:
    job = make_job("j", activeDeadlineSeconds=60, suspend=True)
    wanted = look(job, pods(job, "Running"))
    assert (named(wanted.delete), wanted.create, wanted.again) == (["p0"], [], None)
    assert said(job.status) == {"Suspended": "JobSuspended"}
    job.spec.suspend = False
    assert len(look(job, [], NOW + 500).create) == 1
    assert (said(job.status), job.status.startTime.seconds) == ({}, NOW + 500)
    assert find_true_condition(job.status, "Suspended") is None


@pytest.mark.parametrize("during", [{"suspend": True}, {"parallelism": 0}], ids=["resumed", "scaled up again"])
@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_pods_deleted_by_the_job_cause_no_backoff(during: dict[str, Any], phase: str) -> None:
    """Without the finalizer, pods end during their grace period, and then are Failed until they are removed."""
    job = make_job("j", parallelism=8, completions=8)
    changed = Job()
    changed.CopyFrom(job)
    for field, value in during.items():
        setattr(changed.spec, field, value)
    taken = look(changed, pods(job, *["Running"] * 8)).delete
    assert len(taken) == 8
    job.status.CopyFrom(changed.status)
    ended = NOW if phase == "Failed" else 0.0
    ending = [without_tracking_finalizer(pod(job, name, phase, ended=ended, terminating=True)) for name in named(taken)]
    wanted = look(job, ending, NOW + 1)
    assert (len(wanted.create), wanted.again, job.status.failed) == (8, None, 0)


# --- counting


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
@pytest.mark.parametrize("room", [MAX_UNCOUNTED, 3])
@pytest.mark.parametrize("seed", range(8))
def test_each_pod_is_counted_once_after_any_crash(monkeypatch: pytest.MonkeyPatch, seed: int, room: int, mode: str) -> None:
    """The controller may crash after each step. The cache shows a write before the next sync. Pods are deleted at any time."""
    monkeypatch.setattr(job_status, "MAX_UNCOUNTED", room)
    rng, total = random.Random(seed), 20
    job = make_job("j", parallelism=total, completions=total, completionMode=mode, backoffLimit=1000)
    own: dict[str, Pod] = {}
    for index in range(total):
        made = pod(job, f"p{index}", "Succeeded" if rng.random() < 0.6 else "Failed")
        if mode == "Indexed":
            set_pod_index(made, job, index)
        own[made.metadata.uid] = made
    expected = sum(item.status.phase == "Succeeded" for item in own.values())
    for _ in range(200):
        status, release, *ended = count_pods(job, list(own.values()))[:4]
        assert ended == [expected, total - expected]
        if rng.random() < 0.3:
            continue  # the controller crashed before any write
        job.status.CopyFrom(status)
        for item in rng.sample(release, rng.randint(0, len(release))):
            own[item.metadata.uid] = without_tracking_finalizer(item)
        for uid, each in list(own.items()):
            if not each.metadata.finalizers and rng.random() < 0.5:
                del own[uid]
    assert not own
    assert (job.status.succeeded, job.status.failed) == (expected, total - expected)


@pytest.mark.parametrize("policy", ["TerminatingOrFailed", "Failed"])
@pytest.mark.parametrize("seed", range(8))
def test_failed_job_counts_each_pod_once_after_any_crash(monkeypatch: pytest.MonkeyPatch, seed: int, policy: str) -> None:
    """Some pods have ended, and some are terminating. The status has room for three at a time."""
    monkeypatch.setattr(job_status, "MAX_UNCOUNTED", 3)
    rng, total = random.Random(seed), 20
    job = make_job("j", parallelism=total, backoffLimit=0, podReplacementPolicy=policy)
    made = [
        pod(job, f"p{index}", rng.choice(["Running", "Failed"]), terminating=rng.random() < 0.3) for index in range(total - 1)
    ]
    own = {item.metadata.uid: item for item in [*made, pod(job, "bad", "Failed")]}
    for _ in range(300):
        wanted = plan_job_sync(job, list(own.values()), NOW)
        if rng.random() < 0.3:
            continue  # the controller crashed before any write
        job.status.CopyFrom(wanted.status)
        for item in rng.sample(wanted.release, rng.randint(0, len(wanted.release))):
            own[item.metadata.uid] = without_tracking_finalizer(item)
        for item in rng.sample(wanted.delete, rng.randint(0, len(wanted.delete))):
            own[item.metadata.uid] = without_tracking_finalizer(item) if has_tracking_finalizer(item) else item
            if rng.random() < 0.5:
                own[item.metadata.uid].metadata.deletionTimestamp.CopyFrom(to_time(NOW))
        for uid, each in list(own.items()):
            if not each.metadata.finalizers and each.metadata.HasField("deletionTimestamp") and rng.random() < 0.5:
                del own[uid]
    assert job.status.failed == total
    assert said(job.status) == dict.fromkeys(("FailureTarget", "Failed"), "BackoffLimitExceeded")


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
@pytest.mark.parametrize("seed", range(8))
def test_running_pods_stay_tracked_after_any_crash(seed: int, mode: str) -> None:
    """The controller crashes after it has removed the finalizers of some surplus pods, and before it deletes any. By the
    next sync, other pods are ready and the job is scaled.
    """
    rng, total = random.Random(seed), 10
    job = make_job("j", parallelism=total, completions=total, completionMode=mode)
    own = {item.metadata.uid: item for item in pods(job, *["Running"] * total)}
    for index, each in enumerate(own.values()):
        set_pod_index(each, job, index)
        each.status.conditions.add(type="Ready", status="False")
    for _ in range(20):
        job.spec.parallelism = rng.randint(4, total)
        for item in own.values():
            item.status.conditions[0].status = rng.choice(["True", "False"])
        chosen = [item for item in look(job, list(own.values())).delete if has_tracking_finalizer(item)]
        for item in rng.sample(chosen, rng.randint(0, len(chosen))):
            own[item.metadata.uid] = without_tracking_finalizer(item)  # and then the controller crashed
    job.spec.parallelism = 4
    for item in look(job, list(own.values())).delete:
        del own[item.metadata.uid]
    assert len(own) <= 4 and all(map(has_tracking_finalizer, own.values()))


def test_pod_without_the_finalizer_is_replaced() -> None:
    """The pod may succeed, and its success could not be counted."""
    job = make_job("j", parallelism=2, completions=4)
    first, second = pods(job, "Running", "Running")
    assert named(look(job, [without_tracking_finalizer(first), second]).delete) == ["p0"]
    assert len(look(job, [second]).create) == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_many_ended_pods_are_counted_over_several_syncs(phase: str) -> None:
    """The status has room for a limited number of pods. Uncounted pods are not replaced, and the job does not end before
    all are counted.
    """
    total = 3 * MAX_UNCOUNTED + 1
    job = make_job("j", parallelism=total, completions=total, backoffLimit=0)
    own = {item.metadata.uid: item for item in pods(job, *[phase] * total)}
    looks = 0
    while not {"Complete", "Failed"} & said(job.status).keys():
        wanted = look(job, list(own.values()))
        waiting = job.status.uncountedTerminatedPods
        assert len(waiting.succeeded) + len(waiting.failed) <= MAX_UNCOUNTED and not wanted.create
        own.update((item.metadata.uid, without_tracking_finalizer(item)) for item in wanted.release)
        looks += 1
        assert looks <= 5, "the status does not converge"
    assert (job.status.succeeded, job.status.failed) == ((total, 0) if phase == "Succeeded" else (0, total))


async def test_finalizer_of_orphaned_pods_is_removed() -> None:
    """After a deletion with --cascade=orphan, only the controller removes the finalizer, and the pods could not be deleted."""
    orphan = pod(make_job("j"), "p")
    del orphan.metadata.ownerReferences[:]
    written: list[Pod] = []

    async def update(changed: Pod) -> Pod:
        written.append(changed)
        return changed

    informers = SimpleNamespace(
        store=lambda resource: {}, index=lambda resource, by: Index(by, [orphan]), labelled=lambda resource, only: None
    )
    client = SimpleNamespace(pods=SimpleNamespace(update=update), of=lambda resource: None)
    shared: Any = SimpleNamespace(informers=informers, client=client, clock=None, events=None)
    controller = JobController(shared)
    [watch] = [item for item in controller.watches if item.resource is PODS]
    [key] = watch.keys(Delta(ADDED, orphan, None))
    await controller.sync(key)
    assert [list(item.metadata.finalizers) for item in written] == [[]]


async def test_pods_of_another_namespace_are_not_counted() -> None:
    job = make_job("j", backoffLimit=0)
    own, foreign = pod(job, "own"), pod(job, "foreign", "Failed", ended=NOW)
    foreign.metadata.namespace = "other"
    written: list[Any] = []

    async def write(changed: Any) -> Any:
        written.append(changed)
        return changed

    informers = SimpleNamespace(
        store=lambda resource: {"default/j": job},
        index=lambda resource, by: Index(by, [own, foreign]),
        labelled=lambda resource, only: LabelIndex(only, []),
    )
    client = SimpleNamespace(
        pods=SimpleNamespace(update=write, create_batch=None, delete_batch=None),
        of=lambda resource: SimpleNamespace(update=write, update_status=write),
    )
    shared: Any = SimpleNamespace(
        informers=informers, client=client, clock=SimpleNamespace(time=lambda: NOW), events=SimpleNamespace(event=None)
    )
    await JobController(shared).sync("default/j")
    [updated] = written
    assert (updated.status.active, updated.status.failed, list(updated.status.conditions)) == (1, 0, [])
