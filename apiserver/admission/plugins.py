"""The list of the admission plugins, in the order of their calls. A new plugin is added here.

Source: pkg/kubeapiserver/options/plugins.go of Kubernetes.
"""

from pinnace.api.resources import (
    INGRESS_CLASSES,
    LIMIT_RANGES,
    NAMESPACES,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
)
from pinnace.apiserver.admission import AdmissionChain, MutatingPlugin
from pinnace.apiserver.admission.authorization import ElectionLeases, NodeRestriction, RoleEscalation
from pinnace.apiserver.admission.defaults import (
    DefaultIngressClass,
    DefaultStorageClass,
    NamespaceLifecycle,
    PersistentVolumeClaimResize,
    Priority,
    RuntimeClassAdmission,
    StorageObjectInUseProtection,
    TaintNodesByCondition,
    TraceContext,
)
from pinnace.apiserver.admission.limits import LimitRanger, ResourceQuota
from pinnace.apiserver.auth.authorizer import NodeAuthorizer
from pinnace.apiserver.auth.rbac import RbacAuthorizer
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.quota.ledger import Quotas
from pinnace.runtime.clock import Clock
from pinnace.runtime.tracing import Tracer

SERVICE_ACCOUNT = "ServiceAccount"
OPTIONAL = (SERVICE_ACCOUNT,)
"""The names of the plugins that --disable-admission-plugins disables."""


def parse_plugin_names(text: str) -> frozenset[str]:
    """Return the names in a comma-separated list. Raises ValueError for a plugin that cannot be disabled."""
    names = frozenset(filter(None, map(str.strip, text.split(","))))
    if unknown := sorted(names.difference(OPTIONAL)):
        raise ValueError(f"{unknown[0]} cannot be disabled: use {', '.join(OPTIONAL)}")
    return names


def build_chain(
    cacher: Cacher,
    nodes: NodeAuthorizer,
    rbac: RbacAuthorizer,
    quotas: Quotas,
    tracer: Tracer,
    clock: Clock,
) -> AdmissionChain:
    """Return the chain of all plugins. A plugin that sets defaults and validates is in both lists. ServiceAccount is not among
    them: PodStrategy calls it, after the mutating plugins."""
    cache_of = cacher.cache_of
    limits = LimitRanger(cache_of(LIMIT_RANGES))
    lifecycle = NamespaceLifecycle(cache_of(NAMESPACES))
    runtime_class = RuntimeClassAdmission(cache_of(RUNTIME_CLASSES))
    priority = Priority(cache_of(PRIORITY_CLASSES))
    mutating: tuple[MutatingPlugin, ...] = (
        lifecycle,
        priority,
        runtime_class,
        TaintNodesByCondition(),
        DefaultStorageClass(cache_of(STORAGE_CLASSES)),
        StorageObjectInUseProtection(),
        DefaultIngressClass(cache_of(INGRESS_CLASSES)),
        limits,
        *([TraceContext(tracer)] if tracer.is_exporting else []),
    )
    validating = (
        NodeRestriction(nodes.owns_node, nodes.node_of_pod),
        RoleEscalation(rbac),
        ElectionLeases(),
        priority,
        runtime_class,
        PersistentVolumeClaimResize(cache_of(STORAGE_CLASSES)),
        limits,
        ResourceQuota(quotas.states, quotas.tally, clock),
    )
    return AdmissionChain(mutating, validating, (lifecycle,))
