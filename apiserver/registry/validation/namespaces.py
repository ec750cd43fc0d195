"""Namespaces: their names are DNS labels, because they become parts of names."""

from apiserver.registry.validation.labels import validate_key
from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from pinnace.api import names
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.status import Violation


def validate_namespace(namespace: Namespace) -> list[Violation]:
    """Everything that is wrong with a new namespace."""
    out: list[Violation] = []
    validate_metadata(namespace.metadata, out, namespaced=False, name_check=names.dns_label)
    for index, finalizer in enumerate(namespace.spec.finalizers):
        validate_key(finalizer, f"spec.finalizers[{index}]", out)
    return out


def validate_namespace_update(new: Namespace, old: Namespace) -> list[Violation]:
    """Everything that is wrong with the change of metadata; the rest does not change by an update."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=False, name_check=names.dns_label)
    return out
