"""What a definition selects from custom objects by path: the scale subresource, and fields for field selectors.

Source: k8s.io/apiextensions-apiserver/pkg/registry/customresource (etcd.go, strategy.go) of Kubernetes 1.36.
"""

from collections.abc import Mapping
from typing import Any


class ScaleError(ValueError):
    """An object has no scale. The message is Kubernetes', for a 500 with reason InternalError."""


def scale_of(obj: Mapping[str, Any], scale: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"spec": ..., "status": ...} of the Scale of an object. `scale`: subresources.scale of the version.

    Raises ScaleError if the object has no spec replicas.
    """
    raise NotImplementedError


def set_replicas(obj: dict[str, Any], scale: Mapping[str, Any], replicas: int) -> None:
    """Set the object's spec replicas in place. Raises ScaleError if the path leads through a value that is no object."""
    raise NotImplementedError


def selectable_values(obj: Mapping[str, Any], version: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a version's selectableFields by label: {"spec.color": "red"}. Absent fields are empty."""
    raise NotImplementedError
