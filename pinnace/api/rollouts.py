"""Revisions of a Deployment: the numbers of its ReplicaSets, and the comparison of pod templates."""

from collections.abc import Mapping

from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.api.integers import parse_natural
from pinnace.api.merge import LAST_APPLIED

HASH_LABEL = "pod-template-hash"
"""A label of a ReplicaSet, its template and its pods that separates the pods of different ReplicaSets."""
REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
"""An annotation of a Deployment and its ReplicaSets: the number of the revision."""
HISTORY_ANNOTATION = "deployment.kubernetes.io/revision-history"
"""An annotation of a ReplicaSet: its earlier revision numbers."""
DESIRED_ANNOTATION = "deployment.kubernetes.io/desired-replicas"
"""An annotation of a ReplicaSet: the size of the Deployment when the ReplicaSet was scaled."""
MAX_ANNOTATION = "deployment.kubernetes.io/max-replicas"
"""An annotation of a ReplicaSet: the size of the Deployment plus maxSurge."""
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
"""Annotations that are not copied between a Deployment and its ReplicaSets."""


def without_hash_label(template: PodTemplateSpec) -> PodTemplateSpec:
    """Return a copy of the template without the hash label."""
    copied = PodTemplateSpec()
    copied.CopyFrom(template)
    copied.metadata.labels.pop(HASH_LABEL, None)
    return copied


def revision(annotations: Mapping[str, str]) -> int:
    """Return the revision number in the annotations, or 0."""
    return parse_natural(annotations.get(REVISION_ANNOTATION, "")) or 0
