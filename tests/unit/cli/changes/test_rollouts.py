"""What is told of rollouts, and what they go back to."""

import pytest

from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.merge import LAST_APPLIED
from pinnace.api.rollouts import CHANGE_CAUSE_ANNOTATION, DESIRED_ANNOTATION, HASH_LABEL, REVISION_ANNOTATION, by_revision
from pinnace.cli.outcomes import Failure
from pinnace.cli.verbs.rollout import (
    RolloutReporter,
    chosen,
    pause_deployment,
    progress,
    restart_deployment,
    resume_deployment,
    roll_back,
    row,
)
from tests.workloads import make_deployment, make_replica_set


def deployment(*, updated: int = 0, replicas: int = 0, available: int = 0, observed: int = 1) -> Deployment:
    made = make_deployment("web", replicas=3)
    status = made.status
    status.updatedReplicas, status.replicas, status.availableReplicas = updated, replicas, available
    status.observedGeneration = observed
    made.metadata.annotations[REVISION_ANNOTATION] = "3"
    return made


def revisions(of: Deployment, **images: int) -> dict[int, ReplicaSet]:
    sets = []
    for image, number in images.items():
        each = make_replica_set(f"web-{image}")
        each.metadata.ownerReferences.add(controller=True, uid=of.metadata.uid)
        each.metadata.annotations[REVISION_ANNOTATION] = str(number)
        each.spec.template.spec.containers[0].image = image
        each.spec.template.metadata.labels[HASH_LABEL] = image
        sets.append(each)
    sets.append(make_replica_set("other"))
    return by_revision(of, sets)


@pytest.mark.parametrize(
    ("of", "text", "done"),
    [
        (deployment(observed=0), "Waiting for deployment spec update to be observed...", False),
        (deployment(updated=1), "1 out of 3 new replicas have been updated...", False),
        (deployment(updated=3, replicas=5), "2 old replicas are pending termination...", False),
        (deployment(updated=3, replicas=3, available=2), "2 of 3 updated replicas are available...", False),
        (deployment(updated=3, replicas=3, available=3), 'deployment "web" successfully rolled out', True),
    ],
)
def test_how_far_a_rollout_is(of: Deployment, text: str, done: bool) -> None:
    found = progress(of)
    assert found.text.endswith(text)
    assert found.done is done


def test_a_rollout_that_has_missed_its_deadline_has_failed() -> None:
    late = deployment(updated=1)
    late.status.conditions.add(type="Progressing", reason="ProgressDeadlineExceeded")
    with pytest.raises(Failure, match='deployment "web" exceeded its progress deadline'):
        progress(late)


def test_a_rollout_whose_pods_come_and_go_says_each_step_once_and_is_late_at_its_deadline() -> None:
    told, few, more = RolloutReporter(), deployment(updated=1), deployment(updated=2)
    assert [bool(told.step(each, now)[0]) for now, each in enumerate((few, more, few, more))] == [True, True, False, False]
    assert told.step(few, 601.0) == ("", False), "600 seconds after the last news"
    with pytest.raises(Failure, match="exceeded its progress deadline"):
        told.step(more, 601.5)
    more.metadata.generation = more.status.observedGeneration = 2
    assert told.step(more, 700.0)[0], "another template is another rollout"


def test_a_paused_rollout_is_never_late() -> None:
    told, paused = RolloutReporter(), deployment(updated=1)
    paused.spec.paused = True
    told.step(paused, 0.0)
    assert told.step(paused, 10_000.0) == ("", False)


def test_the_history_is_of_the_deployments_own_replica_sets_oldest_first() -> None:
    found = revisions(deployment(), c=10, b=3, a=2)
    assert list(found) == [2, 3, 10]
    found[2].metadata.annotations["kubernetes.io/change-cause"] = "why not"
    assert [row(*each) for each in found.items()] == [("2", "why not"), ("3", "<none>"), ("10", "<none>")]


def test_one_goes_back_to_the_revision_before_or_to_a_named_one() -> None:
    of = deployment()
    found = revisions(of, a=1, b=2, c=3)
    assert (chosen(of, found, 0), chosen(of, found, 1)) == (2, 1)
    with pytest.raises(Failure, match="unable to find specified revision 9 in history"):
        chosen(of, found, 9)
    with pytest.raises(Failure, match='no rollout history found for deployment "web"'):
        chosen(of, revisions(of, c=3), 0)


def test_to_go_back_is_to_have_the_earlier_template_without_its_hash() -> None:
    of = deployment()
    found = revisions(of, a=1, b=2)
    assert roll_back(of, found[1]) == "rolled back"
    assert of.spec.template.spec.containers[0].image == "a"
    assert HASH_LABEL not in of.spec.template.metadata.labels
    assert roll_back(of, found[1]) == "skipped rollback (current template already matches revision 1)"
    of.spec.paused = True
    with pytest.raises(Failure, match="cannot rollback a paused deployment"):
        roll_back(of, found[2])


def test_to_go_back_is_to_have_the_earlier_annotations_too() -> None:
    of = deployment()
    of.metadata.annotations.update({"owner": "b", "later": "x", LAST_APPLIED: "now", CHANGE_CAUSE_ANNOTATION: "why"})
    (to, *_) = revisions(of, a=1, b=2).values()
    to.metadata.annotations.update({"owner": "a", LAST_APPLIED: "then", DESIRED_ANNOTATION: "9"})
    assert roll_back(of, to) == "rolled back"
    assert dict(of.metadata.annotations) == {"owner": "a", LAST_APPLIED: "now", REVISION_ANNOTATION: "3"}


def test_a_deployment_is_paused_once_resumed_once_and_restarted_only_when_it_is_not_paused() -> None:
    of = deployment()
    before = of.spec.template.SerializeToString()
    assert (pause_deployment(of), of.spec.paused) == ("paused", True)
    with pytest.raises(Failure, match="is already paused"):
        pause_deployment(of)
    with pytest.raises(Failure, match="can't restart paused deployment"):
        restart_deployment(of, 1.0)
    assert of.spec.template.SerializeToString() == before
    assert (resume_deployment(of), of.spec.paused) == ("resumed", False)
    with pytest.raises(Failure, match="is not paused"):
        resume_deployment(of)
    assert restart_deployment(of, 1.0) == "restarted"
    assert of.spec.template.SerializeToString() != before


def test_a_restart_in_the_same_second_as_the_last_is_none() -> None:
    of = deployment()
    restart_deployment(of, 1.0)
    with pytest.raises(Failure, match="was already restarted within this second"):
        restart_deployment(of, 1.9)
    assert restart_deployment(of, 2.0) == "restarted"
