"""Rollouts of deployments, for people: how far one is, and going back to what there was before. Pure.

Source: kubectl, pkg/polymorphichelpers: rollout_status.go, history.go, rollback.go; the messages, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pinnace.api import conditions
from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.quantities import equal
from pinnace.api.rollouts import CHANGE_CAUSE_ANNOTATION, OWN_ANNOTATIONS, bare, revision
from pinnace.api.scalars import format_rfc3339, to_time
from pinnace.cli.outcomes import ExitCode, Failure

RESTARTED_ANNOTATION = "kubectl.kubernetes.io/restartedAt"
"""On a template: it becomes another one by this."""
HEADERS = ("REVISION", "CHANGE-CAUSE")


@dataclass(frozen=True, slots=True)
class Progress:
    text: str
    done: bool


def progress(deployment: Deployment) -> Progress:
    """Raises Failure when the rollout has missed its deadline."""
    name, wanted, status = deployment.metadata.name, deployment.spec.replicas, deployment.status
    if deployment.metadata.generation > status.observedGeneration:
        return Progress("Waiting for deployment spec update to be observed...", False)
    said = conditions.find(status.conditions, "Progressing")
    if said is not None and said.reason == "ProgressDeadlineExceeded":
        raise _late(name)
    waiting = f'Waiting for deployment "{name}" rollout to finish:'
    if status.updatedReplicas < wanted:
        text = f"{waiting} {status.updatedReplicas} out of {wanted} new replicas have been updated..."
    elif status.replicas > status.updatedReplicas:
        text = f"{waiting} {status.replicas - status.updatedReplicas} old replicas are pending termination..."
    elif status.availableReplicas < status.updatedReplicas:
        text = f"{waiting} {status.availableReplicas} of {status.updatedReplicas} updated replicas are available..."
    else:
        return Progress(f'deployment "{name}" successfully rolled out', True)
    return Progress(text, False)


class Told:
    """What has been told of one rollout: each step once, whatever comes and goes. Times are of any clock, in seconds.

    Pods that are refused and replaced count as progress for the controller, again and again, so that it never calls the rollout
    late: here it is, when nothing new has been seen for its progress deadline.
    """

    def __init__(self) -> None:
        self._generation = 0
        self._said = set[str]()
        self._since = 0.0

    def step(self, deployment: Deployment, now: float) -> tuple[str, bool]:
        """What is new, or "", and whether it is complete. Raises Failure when the rollout has missed its deadline."""
        found = progress(deployment)
        if deployment.metadata.generation != self._generation:
            self._generation, self._said = deployment.metadata.generation, set()
        if found.text not in self._said:
            self._said.add(found.text)
            self._since = now
            return found.text, found.done
        spec = deployment.spec
        if spec.HasField("progressDeadlineSeconds") and not spec.paused and now - self._since > spec.progressDeadlineSeconds:
            raise _late(deployment.metadata.name)
        return "", found.done


def _late(name: str) -> Failure:
    hint = f"`pinnace describe deployment {name}` and its replica sets say why; `pinnace rollout undo` goes back"
    return Failure(f'deployment "{name}" exceeded its progress deadline', hint=hint)


def row(number: int, replica_set: ReplicaSet) -> tuple[str, str]:
    return str(number), replica_set.metadata.annotations.get(CHANGE_CAUSE_ANNOTATION, "") or "<none>"


def chosen(deployment: Deployment, revisions: Mapping[int, ReplicaSet], number: int) -> int:
    """The revision to go back to: `number`, or with 0 the one before the present one. Raises Failure."""
    name, present = deployment.metadata.name, revision(deployment.metadata.annotations)
    if number:
        if number in revisions:
            return number
        hint = f"`pinnace rollout history deployment/{name}` shows what there is"
        raise Failure(f"unable to find specified revision {number} in history", hint=hint, code=ExitCode.NOT_FOUND)
    earlier = [each for each in revisions if each != present]
    if not earlier:
        hint = "there is no other revision to go back to"
        raise Failure(f'no rollout history found for deployment "{name}"', hint=hint, code=ExitCode.NOT_FOUND)
    return max(earlier)


def roll_back(deployment: Deployment, to: ReplicaSet) -> str:
    """Gives the deployment the template and the annotations of an earlier revision. Raises Failure when it is paused."""
    if deployment.spec.paused:
        message = "you cannot rollback a paused deployment; resume it first and try again"
        raise Failure(message, hint=f"`pinnace rollout resume deployment/{deployment.metadata.name}`", code=ExitCode.CONFLICT)
    template = bare(to.spec.template)
    if equal(bare(deployment.spec.template), template):
        number = revision(to.metadata.annotations)
        return f"skipped rollback (current template already matches revision {number})"
    deployment.spec.template.CopyFrom(template)
    annotations = deployment.metadata.annotations
    own = {key: value for key, value in annotations.items() if key in OWN_ANNOTATIONS}
    earlier = {key: value for key, value in to.metadata.annotations.items() if key not in OWN_ANNOTATIONS}
    annotations.clear()
    annotations.update({**own, **earlier})
    return "rolled back"


def pause(deployment: Deployment) -> str:
    """Raises Failure when it is."""
    if deployment.spec.paused:
        raise Failure("is already paused", code=ExitCode.CONFLICT)
    deployment.spec.paused = True
    return "paused"


def resume(deployment: Deployment) -> str:
    """Raises Failure when it is not paused."""
    if not deployment.spec.paused:
        raise Failure("is not paused", code=ExitCode.CONFLICT)
    deployment.spec.paused = False
    return "resumed"


def restart(deployment: Deployment, now: float) -> str:
    """`now` is Unix time. Raises Failure when it is paused, or was restarted in the same second: nothing would change."""
    if deployment.spec.paused:
        raise Failure("can't restart paused deployment (run rollout resume first)", code=ExitCode.CONFLICT)
    annotations, instant = deployment.spec.template.metadata.annotations, format_rfc3339(to_time(now))
    if annotations.get(RESTARTED_ANNOTATION) == instant:
        raise Failure(
            "was restarted in this very second", hint="a second later it can be restarted again", code=ExitCode.CONFLICT
        )
    annotations[RESTARTED_ANNOTATION] = instant
    return "restarted"
