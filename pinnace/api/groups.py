"""The versions of API groups that the API serves, with their priorities, for APIService objects.

Source: DefaultGenericAPIServicePriorities in pkg/controlplane/apiserver/aggregator.go of Kubernetes 1.36.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pinnace.api.conversion import SERVED_VERSIONS
from pinnace.api.resources import ALL, API_SERVICES


class Priorities(NamedTuple):
    group: int
    version: int


_GROUPS: Mapping[str, int] = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "resource.k8s.io": 15000,
    "metrics.k8s.io": 100,
}
CUSTOM = Priorities(1000, 100)
"""The priorities of custom groups, and of groups that Kubernetes does not have."""
_VERSIONS: Mapping[tuple[str, str], int] = {("", "v1"): 1, ("autoscaling", "v2"): 30, ("metrics.k8s.io", "v1beta1"): 10}
_DEFAULT_VERSION = 15
_MORE = (
    "authentication.k8s.io/v1", "authorization.k8s.io/v1", "metrics.k8s.io/v1", "metrics.k8s.io/v1beta1", "pinnace.io/v1",
    "resource.k8s.io/v1",
)  # fmt: skip
"""Versions of the gateway, beside those of stored kinds."""


def name_of(group: str, version: str) -> str:
    """Return the name of the APIService."""
    return f"{version}.{group}"


def _local() -> Mapping[str, Priorities]:
    stored = (resource.api_version for resource in (*ALL, *SERVED_VERSIONS) if resource is not API_SERVICES)
    versions = {tuple(api_version.rpartition("/")[::2]) for api_version in (*stored, *_MORE)}
    return {
        name_of(group, version): Priorities(_GROUPS[group], _VERSIONS.get((group, version), _DEFAULT_VERSION))
        if group in _GROUPS
        else CUSTOM
        for group, version in sorted(versions)
    }


LOCAL = _local()
"""The built-in versions by name. As in Kubernetes, that of APIServices themselves is not one of them."""
