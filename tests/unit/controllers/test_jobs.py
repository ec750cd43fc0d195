"""What a job does about its pods, and that it counts each of them once."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from controllers import job as job_controller
from controllers.informers import LabelIndex
from controllers.job import (
    FINALIZER,
    LONGEST_BACKOFF,
    MAX_UNCOUNTED,
    JobController,
    JobPlan,
    backoff,
    condition,
    counted,
    number,
    plan,
    tracked,
    untracked,
)
from pinnace.api.batch_v1_pb2 import Job, JobStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.scalars import to_time
from pinnace.api.verbs_pb2 import ADDED
from pinnace.client.informer import Delta, Index
from tests.unit.controllers.jobs import NOW, pod, pods
from tests.workloads import make_job, named


def said(status: JobStatus) -> dict[str, str]:
    return {each.type: each.reason for each in status.conditions if each.status == "True"}


# --- how many


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
    ids=["one", "parallel", "the rest", "enough", "less parallel", "a queue", "a queue that is empty", "none"],
)
def test_as_many_run_as_may_and_are_needed(spec: dict[str, int], phases: list[str], create: int, delete: int) -> None:
    job = make_job("j", **spec)
    wanted = plan(job, pods(job, *phases), NOW)
    assert (len(wanted.create), len(wanted.delete)) == (create, delete)
    assert all(FINALIZER in each.metadata.finalizers for each in wanted.create)


def test_a_pod_that_fails_is_replaced_after_a_pause_that_doubles() -> None:
    job = make_job("j")
    first = [pod(job, "a", "Failed", ended=NOW)]
    wanted = plan(job, first, NOW + 4)
    assert (wanted.create, wanted.again) == ([], 6.0)
    assert len(plan(job, first, NOW + 10).create) == 1
    again = [*first, pod(job, "b", "Failed", ended=NOW + 20), pod(job, "c", "Failed", ended=NOW + 50)]
    assert backoff(again, NOW + 50) == 40.0
    assert backoff([*again, pod(job, "d", "Succeeded", ended=NOW + 60)], NOW + 61) == 0.0
    many = [pod(job, str(each), "Failed", ended=NOW) for each in range(30)]
    assert backoff(many, NOW) == LONGEST_BACKOFF


def test_job_backs_off_for_each_failed_pod() -> None:
    """A node may have refused it, or it ended before its container was started; or a sidecar ended last."""
    job = make_job("j")
    refused = pod(job, "refused", "Failed")
    refused.metadata.creationTimestamp.seconds = int(NOW)
    late = pod(job, "late", "Failed")
    late.status.containerStatuses.add(name="c0").state.terminated.exitCode = 137
    late.status.conditions.add(type="Ready", status="False").lastTransitionTime.seconds = int(NOW)
    with_sidecar = pod(job, "with-sidecar", "Failed", ended=NOW - 20)
    with_sidecar.status.initContainerStatuses.add(name="s").state.terminated.finishedAt.seconds = int(NOW)
    assert [backoff([each], NOW) for each in (refused, late, with_sidecar)] == [10.0] * 3


@pytest.mark.parametrize(("policy", "create"), [("TerminatingOrFailed", 1), ("Failed", 0)])
def test_a_pod_that_is_being_deleted_is_replaced_at_once_or_when_it_has_ended(policy: str, create: int) -> None:
    job = make_job("j", podReplacementPolicy=policy)
    wanted = plan(job, [pod(job, "a", terminating=True)], NOW + 1)
    assert (len(wanted.create), len(wanted.status.uncountedTerminatedPods.failed)) == (create, create)
    unbound = pod(job, "b", terminating=True)
    unbound.spec.nodeName = ""
    assert counted(job, [unbound]).failed == 1


# --- how it ends


def look(job: Job, own: list[Pod], now: float = NOW) -> JobPlan:
    """Stores the status, as the controller does."""
    wanted = plan(job, own, now)
    job.status.CopyFrom(wanted.status)
    return wanted


def test_a_job_is_complete_when_enough_have_succeeded_and_are_counted() -> None:
    job = make_job("j", parallelism=2, completions=2)
    own = pods(job, "Succeeded", "Succeeded", "Running")
    first = look(job, own)
    assert said(job.status) == {"SuccessCriteriaMet": "CompletionsReached"}
    assert (named(first.delete), named(first.release)) == (["p2"], ["p0", "p1"])
    own = [untracked(each) for each in own[:2]]
    look(job, own, NOW + 5)
    assert said(job.status) == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert (job.status.succeeded, job.status.completionTime.seconds) == (2, NOW + 5)


def test_a_job_is_not_complete_before_it_began() -> None:
    """The controller that began it may have had another clock."""
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
def test_a_job_fails_by_its_pods_their_restarts_or_the_time(
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
def test_the_restarts_of_all_containers_are_failures(limit: int, failed: bool) -> None:
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
def test_pods_that_a_job_takes_with_it_when_it_fails_have_failed(policy: str) -> None:
    job = make_job("j", parallelism=3, activeDeadlineSeconds=60, podReplacementPolicy=policy)
    own = [*pods(job, "Running", "Pending", "Succeeded"), pod(job, "ending", terminating=True)]
    look(job, [])
    wanted = look(job, own, NOW + 60)
    assert (said(job.status), named(wanted.delete)) == ({"FailureTarget": "DeadlineExceeded"}, ["p0", "p1"])
    assert set(named([*wanted.release, *wanted.delete])) == set(named(own))
    look(job, [untracked(each) for each in own[2:]], NOW + 61)
    assert (job.status.succeeded, job.status.failed, "Failed" in said(job.status)) == (1, 3, False)
    look(job, [], NOW + 90)
    assert (job.status.failed, said(job.status)["Failed"]) == (3, "DeadlineExceeded")


@pytest.mark.parametrize("suspend", [False, True])
def test_pods_that_a_job_ends_because_enough_have_succeeded_have_not_failed(suspend: bool) -> None:
    job = make_job("j", parallelism=2, completions=1, suspend=suspend)
    own = pods(job, "Running", "Running") if suspend else pods(job, "Succeeded", "Running")
    ended = [untracked(each) for each in own if each not in look(job, own).delete]
    look(job, ended)
    assert job.status.failed == 0


def test_time_left_is_when_it_is_looked_at_again() -> None:
    job = make_job("j", activeDeadlineSeconds=60)
    look(job, [])
    assert plan(job, pods(job, "Running"), NOW + 20).again == 40.0


def test_suspended_nothing_runs_and_the_time_stands_still() -> None:
    job = make_job("j", activeDeadlineSeconds=60, suspend=True)
    wanted = look(job, pods(job, "Running"))
    assert (named(wanted.delete), wanted.create, wanted.again) == (["p0"], [], None)
    assert said(job.status) == {"Suspended": "JobSuspended"}
    job.spec.suspend = False
    assert len(look(job, [], NOW + 500).create) == 1
    assert (said(job.status), job.status.startTime.seconds) == ({}, NOW + 500)
    assert condition(job.status, "Suspended") is None


@pytest.mark.parametrize("during", [{"suspend": True}, {"parallelism": 0}], ids=["resumed", "scaled up again"])
@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_pods_that_the_job_itself_ends_are_no_failures_that_it_pauses_for(during: dict[str, Any], phase: str) -> None:
    """Without the finalizer they end for as long as their grace period is; then they are Failed until they are gone."""
    job = make_job("j", parallelism=8, completions=8)
    changed = Job()
    changed.CopyFrom(job)
    for field, value in during.items():
        setattr(changed.spec, field, value)
    taken = look(changed, pods(job, *["Running"] * 8)).delete
    assert len(taken) == 8
    job.status.CopyFrom(changed.status)
    ended = NOW if phase == "Failed" else 0.0
    ending = [untracked(pod(job, name, phase, ended=ended, terminating=True)) for name in named(taken)]
    wanted = look(job, ending, NOW + 1)
    assert (len(wanted.create), wanted.again, job.status.failed) == (8, None, 0)


# --- counting


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
@pytest.mark.parametrize("room", [MAX_UNCOUNTED, 3])
@pytest.mark.parametrize("seed", range(8))
def test_each_pod_is_counted_once_wherever_the_controller_dies(
    monkeypatch: pytest.MonkeyPatch, seed: int, room: int, mode: str
) -> None:
    """Each step may be the last of a controller. The cache shows a write before the next look; pods are deleted at any time."""
    monkeypatch.setattr(job_controller, "MAX_UNCOUNTED", room)
    rng, total = random.Random(seed), 20
    job = make_job("j", parallelism=total, completions=total, completionMode=mode, backoffLimit=1000)
    own: dict[str, Pod] = {}
    for index in range(total):
        made = pod(job, f"p{index}", "Succeeded" if rng.random() < 0.6 else "Failed")
        if mode == "Indexed":
            number(made, job, index)
        own[made.metadata.uid] = made
    expected = sum(each.status.phase == "Succeeded" for each in own.values())
    for _ in range(200):
        status, release, *ended, _ = counted(job, list(own.values()))
        assert ended == [expected, total - expected]
        if rng.random() < 0.3:
            continue  # it died before it wrote anything
        job.status.CopyFrom(status)
        for each in rng.sample(release, rng.randint(0, len(release))):
            own[each.metadata.uid] = untracked(each)
        for uid, each in list(own.items()):
            if not each.metadata.finalizers and rng.random() < 0.5:
                del own[uid]
    assert not own
    assert (job.status.succeeded, job.status.failed) == (expected, total - expected)


@pytest.mark.parametrize("policy", ["TerminatingOrFailed", "Failed"])
@pytest.mark.parametrize("seed", range(8))
def test_failed_job_counts_each_pod_once_after_any_crash(monkeypatch: pytest.MonkeyPatch, seed: int, policy: str) -> None:
    """Some of them have ended, some are ending; there is room for three at a time in the status."""
    monkeypatch.setattr(job_controller, "MAX_UNCOUNTED", 3)
    rng, total = random.Random(seed), 20
    job = make_job("j", parallelism=total, backoffLimit=0, podReplacementPolicy=policy)
    made = [
        pod(job, f"p{each}", rng.choice(["Running", "Failed"]), terminating=rng.random() < 0.3) for each in range(total - 1)
    ]
    own = {each.metadata.uid: each for each in [*made, pod(job, "bad", "Failed")]}
    for _ in range(300):
        wanted = plan(job, list(own.values()), NOW)
        if rng.random() < 0.3:
            continue  # it died before it wrote anything
        job.status.CopyFrom(wanted.status)
        for each in rng.sample(wanted.release, rng.randint(0, len(wanted.release))):
            own[each.metadata.uid] = untracked(each)
        for each in rng.sample(wanted.delete, rng.randint(0, len(wanted.delete))):
            own[each.metadata.uid] = untracked(each) if tracked(each) else each
            if rng.random() < 0.5:
                own[each.metadata.uid].metadata.deletionTimestamp.CopyFrom(to_time(NOW))
        for uid, each in list(own.items()):
            if not each.metadata.finalizers and each.metadata.HasField("deletionTimestamp") and rng.random() < 0.5:
                del own[uid]
    assert job.status.failed == total
    assert said(job.status) == dict.fromkeys(("FailureTarget", "Failed"), "BackoffLimitExceeded")


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
@pytest.mark.parametrize("seed", range(8))
def test_no_pod_that_runs_on_is_left_uncounted_wherever_the_controller_dies(seed: int, mode: str) -> None:
    """Having taken the finalizers of some of the pods that are too many, and deleted none. By the next look others are
    ready, and the job is scaled."""
    rng, total = random.Random(seed), 10
    job = make_job("j", parallelism=total, completions=total, completionMode=mode)
    own = {each.metadata.uid: each for each in pods(job, *["Running"] * total)}
    for index, each in enumerate(own.values()):
        number(each, job, index)
        each.status.conditions.add(type="Ready", status="False")
    for _ in range(20):
        job.spec.parallelism = rng.randint(4, total)
        for each in own.values():
            each.status.conditions[0].status = rng.choice(["True", "False"])
        chosen = [each for each in look(job, list(own.values())).delete if tracked(each)]
        for each in rng.sample(chosen, rng.randint(0, len(chosen))):
            own[each.metadata.uid] = untracked(each)  # and then it died
    job.spec.parallelism = 4
    for each in look(job, list(own.values())).delete:
        del own[each.metadata.uid]
    assert len(own) <= 4 and all(map(tracked, own.values()))


def test_a_pod_without_the_finalizer_is_replaced_although_none_is_too_many() -> None:
    """It may succeed, and nobody would know."""
    job = make_job("j", parallelism=2, completions=4)
    first, second = pods(job, "Running", "Running")
    assert named(look(job, [untracked(first), second]).delete) == ["p0"]
    assert len(look(job, [second]).create) == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_when_many_pods_end_they_are_counted_in_several_looks(phase: str) -> None:
    """As an object may have 10,000 parts. Nothing is made in place of those that are not written down yet, and the job does not
    end before they are."""
    total = 3 * MAX_UNCOUNTED + 1
    job = make_job("j", parallelism=total, completions=total, backoffLimit=0)
    own = {each.metadata.uid: each for each in pods(job, *[phase] * total)}
    looks = 0
    while not {"Complete", "Failed"} & said(job.status).keys():
        wanted = look(job, list(own.values()))
        waiting = job.status.uncountedTerminatedPods
        assert len(waiting.succeeded) + len(waiting.failed) <= MAX_UNCOUNTED and not wanted.create
        own.update((each.metadata.uid, untracked(each)) for each in wanted.release)
        looks += 1
        assert looks <= 5, "each look brings about the next"
    assert (job.status.succeeded, job.status.failed) == ((total, 0) if phase == "Succeeded" else (0, total))


async def test_pods_that_have_lost_their_job_lose_its_finalizer() -> None:
    """Deleted with --cascade=orphan: nobody else would take it away, and they could never be deleted."""
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
    [watch] = [each for each in controller.watches if each.resource is PODS]
    [key] = watch.keys(Delta(ADDED, orphan, None))
    await controller.sync(key)
    assert [list(each.metadata.finalizers) for each in written] == [[]]


async def test_pods_of_another_namespace_are_not_counted_and_its_own_are_kept() -> None:
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
    [told] = written
    assert (told.status.active, told.status.failed, list(told.status.conditions)) == (1, 0, [])
