"""Revisions of a deployment: the numbers of its replica sets, and the comparison of their templates with its own."""

from collections.abc import Iterable, Mapping

from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.api.merge import LAST_APPLIED
from pinnace.api.scalars import natural

HASH_LABEL = "pod-template-hash"
"""On a replica set, its template and its pods: so that the pods of one are not another's."""
REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
"""On a deployment and its replica sets: the number of the rollout that made it what it is."""
HISTORY_ANNOTATION = "deployment.kubernetes.io/revision-history"
"""On a replica set: its earlier revisions."""
DESIRED_ANNOTATION = "deployment.kubernetes.io/desired-replicas"
"""On a replica set: the deployment's size when it was given its own."""
MAX_ANNOTATION = "deployment.kubernetes.io/max-replicas"
"""Likewise, with maxSurge."""
CHANGE_CAUSE_ANNOTATION = "kubernetes.io/change-cause"
"""On both: why, in somebody's words."""
OWN_ANNOTATIONS = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        LAST_APPLIED,
        REVISION_ANNOTATION,
        HISTORY_ANNOTATION,
        DESIRED_ANNOTATION,
        MAX_ANNOTATION,
    }
)
"""Those that a replica set does not take over from its deployment, nor the deployment from it when it goes back."""


def bare(template: PodTemplateSpec) -> PodTemplateSpec:
    """A copy without the hash."""
    copied = PodTemplateSpec()
    copied.CopyFrom(template)
    copied.metadata.labels.pop(HASH_LABEL, None)
    return copied


def revision(annotations: Mapping[str, str]) -> int:
    """0: it has none."""
    return natural(annotations.get(REVISION_ANNOTATION, "")) or 0


def by_revision(deployment: Deployment, sets: Iterable[ReplicaSet]) -> dict[int, ReplicaSet]:
    """The replica sets of a deployment, oldest first. `sets`: of its namespace."""
    uid = deployment.metadata.uid
    own = [each for each in sets if any(owner.controller and owner.uid == uid for owner in each.metadata.ownerReferences)]
    return dict(sorted((number, each) for each in own if (number := revision(each.metadata.annotations))))
