"""The replica sets of a deployment: which one is of the present template, what they are numbered, which are forgotten. Pure.

A replica set is named after a hash of its template, and has the hash as a label, on its pods too: the pods of one are not
another's. Revisions are numbered by annotations: the present template's is the highest, and one that it had before goes to its
history.
"""

import hashlib
from collections.abc import Iterable, Sequence

from controllers.deployments.rolling import lags, most, oldest_first
from controllers.ownership import refers_to
from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.api.quantities import equal
from pinnace.api.resources import DEPLOYMENTS
from pinnace.api.rollouts import (
    DESIRED_ANNOTATION,
    HASH_LABEL,
    HISTORY_ANNOTATION,
    MAX_ANNOTATION,
    OWN_ANNOTATIONS,
    REVISION_ANNOTATION,
    bare,
    revision,
)

MAX_HISTORY = 2_000
"""Characters of HISTORY_ANNOTATION. Source: maxRevHistoryLengthInChars in
https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/deployment/sync.go"""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' for names that are made up: no words come of it."""
_LENGTH = 10


def template_hash(template: PodTemplateSpec, collisions: int) -> str:
    """`collisions`: how often the name that this makes was somebody else's."""
    digest = hashlib.blake2b(template.SerializeToString(deterministic=True), digest_size=_LENGTH)
    if collisions:
        digest.update(str(collisions).encode())
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest.digest())


def split(deployment: Deployment, sets: Iterable[ReplicaSet]) -> tuple[ReplicaSet | None, list[ReplicaSet]]:
    """The replica set of the present template, the oldest if there are several; and all others."""
    ordered = oldest_first(sets)
    wanted = bare(deployment.spec.template)
    new = next((each for each in ordered if equal(bare(each.spec.template), wanted)), None)
    return new, [each for each in ordered if each is not new]


def made(deployment: Deployment, size: int, old: Sequence[ReplicaSet]) -> ReplicaSet:
    """The replica set of the present template, to create."""
    spec, metadata = deployment.spec, deployment.metadata
    template = bare(spec.template)
    hash_ = template_hash(template, deployment.status.collisionCount)
    new = ReplicaSet()
    new.metadata.name, new.metadata.namespace = f"{metadata.name}-{hash_}", metadata.namespace
    new.metadata.ownerReferences.append(refers_to(DEPLOYMENTS, deployment))
    new.spec.template.CopyFrom(template)
    new.spec.template.metadata.labels[HASH_LABEL] = hash_
    new.metadata.labels.update(new.spec.template.metadata.labels)
    new.spec.selector.CopyFrom(spec.selector)
    new.spec.selector.matchLabels[HASH_LABEL] = hash_
    describe(new, deployment, old)
    resize(new, deployment, size)
    return new


def describe(new: ReplicaSet, deployment: Deployment, old: Sequence[ReplicaSet]) -> None:
    """Gives the new replica set what it has from its deployment, and the highest revision."""
    new.spec.minReadySeconds = deployment.spec.minReadySeconds
    annotations = new.metadata.annotations
    annotations.update({key: value for key, value in deployment.metadata.annotations.items() if key not in OWN_ANNOTATIONS})
    before = revision(annotations)
    wanted = 1 + max((revision(each.metadata.annotations) for each in old), default=0)
    if before < wanted:
        if before:
            annotations[HISTORY_ANNOTATION] = _history(annotations.get(HISTORY_ANNOTATION, ""), before)
        annotations[REVISION_ANNOTATION] = str(wanted)


def _history(earlier: str, latest: int) -> str:
    """Revisions, without the oldest of those that are too many."""
    history = f"{earlier},{latest}" if earlier else str(latest)
    return history if len(history) <= MAX_HISTORY else history[-MAX_HISTORY - 1 :].partition(",")[2]


def resize(replica_set: ReplicaSet, deployment: Deployment, size: int) -> None:
    """With a note of what size the deployment has."""
    replica_set.spec.replicas = size
    annotations = replica_set.metadata.annotations
    annotations[DESIRED_ANNOTATION], annotations[MAX_ANNOTATION] = str(deployment.spec.replicas), str(most(deployment))


def forgotten(deployment: Deployment, old: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Beyond revisionHistoryLimit, the lowest revisions; not those that have pods, or have not said that they have none."""
    there = [each for each in old if not each.metadata.HasField("deletionTimestamp")]
    surplus = max(0, len(there) - deployment.spec.revisionHistoryLimit)
    lowest = sorted(there, key=lambda each: revision(each.metadata.annotations))[:surplus]
    return [each for each in lowest if not (each.spec.replicas or each.status.replicas or lags(each))]
