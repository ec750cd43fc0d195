"""Replica sets: a selector that finds the pods of the template, and stays.

Source: pkg/apis/apps/validation of Kubernetes 1.36.
"""

from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.pod_templates import validate_parts, validate_replicated, validate_selector_update
from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.api.status import Violation


def validate_replica_set(obj: ReplicaSet) -> list[Violation]:
    """Everything that is wrong with a new replica set, after defaults."""
    out: list[Violation] = []
    validate_metadata(obj.metadata, out, namespaced=True)
    validate_replicated(obj.spec, out)
    return out


def validate_replica_set_update(new: ReplicaSet, old: ReplicaSet) -> list[Violation]:
    """Everything that is wrong with the change, and with the replica set as it would be."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=True)
    validate_replicated(new.spec, out)
    validate_selector_update(new.spec, old.spec, out)
    return out


def validate_replica_set_status(obj: ReplicaSet) -> list[Violation]:
    """Everything that is wrong with a new status."""
    out: list[Violation] = []
    validate_parts(obj.status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), out)
    return out
