"""Names of resources: which ones containers, quotas and limit ranges may speak of.

Source: pkg/apis/core/helper and pkg/apis/core/validation of Kubernetes 1.36.
"""

from pinnace.api import names

HUGE_PAGES = "hugepages-"
CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})
"""What a container can ask for, besides huge pages and extended resources."""
COUNTED = frozenset({
    "pods", "services", "services.nodeports", "services.loadbalancers", "replicationcontrollers", "resourcequotas", "secrets",
    "configmaps", "persistentvolumeclaims",
})  # fmt: skip
"""What comes in whole numbers, besides extended resources."""
_QUOTA = (
    CONTAINER | COUNTED | {"requests.storage"} | {f"{prefix}.{name}" for prefix in ("requests", "limits") for name in CONTAINER}
)
_STANDARD = _QUOTA | {"storage"}
_QUOTA_HUGE_PAGES = (HUGE_PAGES, f"requests.{HUGE_PAGES}")


def of_anything(name: str) -> tuple[str, ...]:
    """What is wrong with the name of a resource, whoever speaks of it."""
    return names.label_key(name) or _unqualified(name)


def of_container(name: str) -> tuple[str, ...]:
    """What is wrong with the name of a resource that a container asks for."""
    if name in CONTAINER:
        return names.OK
    if problems := names.label_key(name):
        return problems
    if "/" not in name:
        known = name.startswith(HUGE_PAGES)
        return names.OK if known else (*_unqualified(name), "must be a standard resource for containers")
    known = names.is_native_resource(name) or names.is_extended_resource(name)
    return names.OK if known else ("doesn't follow extended resource name standard",)


def of_quota(name: str) -> tuple[str, ...]:
    """What is wrong with the name of a resource that a quota bounds."""
    if problems := names.label_key(name):
        return problems
    return names.OK if "/" in name or in_quota(name) else (*_unqualified(name), "must be a standard resource for quota")


def in_quota(name: str) -> bool:
    """Is it one that Kubernetes itself counts?"""
    return name in _QUOTA or name.startswith(_QUOTA_HUGE_PAGES)


def overcommits(name: str) -> bool:
    """May limits exceed requests?"""
    return names.is_native_resource(name) and not name.startswith(HUGE_PAGES)


def _unqualified(name: str) -> tuple[str, ...]:
    known = "/" in name or name in _STANDARD or name.startswith(_QUOTA_HUGE_PAGES)
    return names.OK if known else ("must be a standard resource type or fully qualified",)
