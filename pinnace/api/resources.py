"""The table of the resources that the API serves, and the Kubernetes kinds that it does not serve.

The server, the clients and the CLI are generic over this table. A new resource is a row here, a service in proto/, and a
strategy in apiserver.registry.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from google.protobuf import message_factory
from google.protobuf.message import Message

from pinnace.api import (
    admissionregistration_v1_pb2,
    apiextensions_v1_pb2,
    apiregistration_v1_pb2,
    apiservices_pb2,
    apps_v1_pb2,
    autoscaling_v1_pb2,
    autoscaling_v1_service_pb2,
    autoscaling_v2_pb2,
    batch_v1_pb2,
    clusterrolebindings_pb2,
    clusterroles_pb2,
    configmaps_pb2,
    controllerrevisions_pb2,
    coordination_v1_pb2,
    core_v1_pb2,
    cronjobs_pb2,
    csinodes_pb2,
    customobjects_pb2,
    customresourcedefinitions_pb2,
    daemonsets_pb2,
    deployments_pb2,
    discovery_v1_pb2,
    endpoints_pb2,
    endpointslices_pb2,
    events_pb2,
    events_v1_pb2,
    events_v1_service_pb2,
    horizontalpodautoscalers_pb2,
    ingressclasses_pb2,
    ingresses_pb2,
    ipaddresses_pb2,
    jobs_pb2,
    leases_pb2,
    limitranges_pb2,
    mutatingadmissionpolicies_pb2,
    mutatingadmissionpolicybindings_pb2,
    mutatingwebhookconfigurations_pb2,
    namespaces_pb2,
    networking_v1_pb2,
    networkpolicies_pb2,
    node_v1_pb2,
    nodes_pb2,
    persistentvolumeclaims_pb2,
    persistentvolumes_pb2,
    poddisruptionbudgets_pb2,
    pods_pb2,
    policy_v1_pb2,
    priorityclasses_pb2,
    rbac_v1_pb2,
    replicasets_pb2,
    resourcequotas_pb2,
    rolebindings_pb2,
    roles_pb2,
    runtimeclasses_pb2,
    scheduling_v1_pb2,
    secrets_pb2,
    serviceaccounts_pb2,
    servicecidrs_pb2,
    services_pb2,
    statefulsets_pb2,
    storage_v1_pb2,
    storageclasses_pb2,
    validatingadmissionpolicies_pb2,
    validatingadmissionpolicybindings_pb2,
    validatingwebhookconfigurations_pb2,
)
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.meta_v1_pb2 import ObjectMeta

ROOT = "/registry/"
"""The prefix of all etcd keys with cluster state."""
CUSTOM_SERVICE = "pinnace.v1.CustomObjects"
"""The gRPC service whose methods every version of every custom kind has, in a service of its own."""
NODE_PORTS_PREFIX = f"{ROOT}nodeports/"
ELECTIONS_PREFIX = f"{ROOT}elections/"
NOMINATIONS_PREFIX = f"{ROOT}nominations/"
CANDIDATES_PREFIX = f"{ROOT}candidates/"
TERMS_PREFIX = f"{ROOT}terms/"
RESTORES_KEY = f"{ROOT}restores"
"""The key with the ID of each restore in this history (pinnace.apiserver.election.term_history)."""
CLUSTER_KEY = f"{ROOT}cluster"
"""The key with the identity of the cluster (pinnace.apiserver.startup)."""
COMMITS_PREFIX = "/pinnace.io/commits/"
"""The prefix of commit markers. It is outside /registry/, because commit markers are not cluster state and are not cached."""
STORAGE_FORMAT_KEY = "/pinnace.io/storage-format"
"""The key with the storage format of all objects (pinnace.apiserver.startup). It is outside /registry/."""
COMPACT_REV_KEY = "/pinnace.io/compact_rev_key"
"""The key that coordinates compaction between API servers (apiserver.storage.compactor). It is outside /registry/. Kubernetes
uses the same name."""
EVENTS_TRIM_KEY = "/pinnace.io/events-trim"
"""The key that coordinates the deletion of excess events between API servers (apiserver.registry.events). It is outside
/registry/."""
DEFAULT_NAMESPACE = "default"
UNSAID = ("", "0")
"""The resourceVersions that mean "not set", as in Kubernetes."""
NODE_LEASE_NAMESPACE = "kube-node-lease"
SYSTEM_NAMESPACE = "kube-system"
_DEPLOYMENT = "a Deployment keeps pods running"
_CERTIFICATES = "users are identified by certificates: `pinnace pki DIR --user NAME`; bind roles to users and groups"
_CLAIMS = "request storage with a PersistentVolumeClaim and a StorageClass; see docs/workloads.md"
_DEVICES = "extended resources of nodes, such as example.com/gpu, are requested like cpu"


class Object(Protocol):
    """An API object: a protobuf message with ObjectMeta as field 1. Most kinds have a `spec` and a `status`."""

    @property
    def metadata(self) -> ObjectMeta: ...
    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...  # noqa: N802 (protobuf's name)
    def ParseFromString(self, serialized: bytes, /) -> int: ...  # noqa: N802
    def CopyFrom(self, other: Self, /) -> None: ...  # noqa: N802
    def ByteSize(self) -> int: ...  # noqa: N802


T = TypeVar("T", bound=Object)
T_co = TypeVar("T_co", bound=Object, covariant=True)


@dataclass(frozen=True, eq=False)
class Resource(Generic[T_co]):
    """One kind of object. `messages`: the generated module of its service. Request messages are named after the kind."""

    plural: str
    kind: str
    api_version: str
    message: type[T_co]
    service: str
    """The full name of the gRPC service, for example "pinnace.v1.Pods"."""
    messages: Any
    namespaced: bool
    short_names: tuple[str, ...] = ()

    def request(self, prefix: str, suffix: str = "Request") -> type[Message]:
        """Return the message class `<prefix><Kind><suffix>`: request("Create") is CreatePodRequest."""
        result: type[Message] = getattr(self.messages, f"{prefix}{self.kind}{suffix}")
        return result

    @property
    def group(self) -> str:
        """The API group without the version. The core group is ""."""
        return self.api_version.rpartition("/")[0]

    @property
    def watch_response(self) -> type[Message]:
        return self.request("", "WatchResponse")

    @property
    def list_message(self) -> type[Message]:
        """The message class `<Kind>List`."""
        message: Any = self.message
        return message_factory.GetMessageClass(message.DESCRIPTOR.file.message_types_by_name[f"{self.kind}List"])

    @property
    def stored_name(self) -> str:
        """The name in etcd keys, which no other resource has: the plural, or of a custom resource "widgets.example.com"."""
        return self.plural

    @property
    def prefix(self) -> str:
        """The prefix of the etcd keys of this resource."""
        return f"{ROOT}{self.plural}/"

    def home(self, said: str) -> str:
        """Return the effective namespace of an object with the namespace `said`: "default" if it is empty, or "" if the
        resource is cluster-scoped."""
        return (said or DEFAULT_NAMESPACE) if self.namespaced else ""

    def key(self, namespace: str, name: str) -> str:
        """Return the etcd key of an object. Cluster-scoped resources ignore `namespace`."""
        return f"{ROOT}{self.plural}/{namespace}/{name}" if self.namespaced else f"{ROOT}{self.plural}/{name}"

    def key_of(self, obj: Object) -> str:
        return self.key(obj.metadata.namespace, obj.metadata.name)


class CustomSchema(Protocol):
    """The rules of a version of a custom kind (pinnace.apiextensions.kinds)."""

    def find_unknown_fields(self, obj: dict[str, Any]) -> list[str]:
        """Return the paths of the fields that the schema does not declare, sorted. May remove them from `obj`."""
        ...

    def to_served(self, obj: CustomObject) -> dict[str, Any]:
        """Return the form in which a stored object is served in this version: with defaults, without unknown fields."""
        ...

    def to_served_object(self, obj: CustomObject) -> CustomObject:
        """Return an object of any version in this version."""
        ...

    def has_versions(self, *api_versions: str) -> bool:
        """Return whether the kind has these versions."""
        ...

    def served_versions(self) -> "Mapping[str, CustomResource]":
        """Return the served versions of the kind by API version."""
        ...

    def ownership_type(self) -> Any:
        """Return the type of the objects for server-side apply (pinnace.api.schema)."""
        ...


@dataclass(frozen=True, eq=False)
class CustomResource(Resource[CustomObject]):
    """A version of a kind that a CustomResourceDefinition adds at run time. All versions of a kind have the same keys."""

    schema: CustomSchema | None = None
    """None for reads of metadata alone."""
    list_kind: str = ""
    singular: str = ""
    categories: tuple[str, ...] = ()
    readers: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    """The fields of field selectors."""

    @property
    def stored_name(self) -> str:
        return f"{self.plural}.{self.group}"

    @property
    def prefix(self) -> str:
        return f"{ROOT}{self.stored_name}/"

    @property
    def list_message(self) -> type[Message]:
        return customobjects_pb2.CustomObjectList

    def request(self, prefix: str, suffix: str = "Request") -> type[Message]:
        result: type[Message] = getattr(customobjects_pb2, f"{prefix}CustomObject{suffix}")
        return result

    def key(self, namespace: str, name: str) -> str:
        return f"{self.prefix}{namespace}/{name}" if self.namespaced else f"{self.prefix}{name}"


CUSTOM_OBJECTS = Resource(
    "customobjects", "CustomObject", "v1", CustomObject, CUSTOM_SERVICE, customobjects_pb2, namespaced=True
)
"""Stands for all custom resources in tables of resources. It has no objects."""


def custom_service(version: str, plural: str, group: str) -> str:
    """Return the gRPC service of a version of a custom kind."""
    return f"{CUSTOM_SERVICE}.{version}.{plural}.{group}"


def is_custom_prefix(prefix: str) -> bool:
    """Return whether keys with this prefix (`prefix_of`) are those of custom objects: "/registry/widgets.example.com/"."""
    return "." in prefix and prefix.startswith(ROOT)


def custom_row(prefix: str) -> CustomResource:
    """Return a row for the metadata of the objects with a custom prefix, which are those of any scope."""
    plural, _, group = prefix.removeprefix(ROOT).rstrip("/").partition(".")
    return CustomResource(plural, "", f"{group}/", CustomObject, CUSTOM_SERVICE, customobjects_pb2, namespaced=True)


def prefix_of(key: str) -> str:
    """Return the `prefix` of the resource of an etcd key or prefix, for example "/registry/pods/" for
    "/registry/pods/default/a". Return "" if the key has fewer segments."""
    return key[: key.find("/", len(ROOT)) + 1]


def namespace_of(key: str) -> str:
    """Return the namespace in the etcd key of a namespaced object: "default" for "/registry/pods/default/a"."""
    return key.split("/", 4)[3]


def store_key(obj: Object) -> str:
    """Return the key of an object in an informer's store: "namespace/name", or "name" for cluster-scoped resources."""
    metadata = obj.metadata
    namespace = metadata.namespace
    return f"{namespace}/{metadata.name}" if namespace else metadata.name


PODS = Resource(
    "pods", "Pod", "v1", core_v1_pb2.Pod, "pinnace.v1.Pods", pods_pb2,
    namespaced=True, short_names=("po",),
)  # fmt: skip
NODES = Resource(
    "nodes", "Node", "v1", core_v1_pb2.Node, "pinnace.v1.Nodes", nodes_pb2,
    namespaced=False, short_names=("no",),
)  # fmt: skip
NAMESPACES = Resource(
    "namespaces", "Namespace", "v1", core_v1_pb2.Namespace, "pinnace.v1.Namespaces", namespaces_pb2,
    namespaced=False, short_names=("ns",),
)  # fmt: skip
EVENTS = Resource(
    "events", "Event", "v1", core_v1_pb2.Event, "pinnace.v1.Events", events_pb2,
    namespaced=True, short_names=("ev",),
)  # fmt: skip
EVENTS_V1 = Resource(
    "events", "Event", "events.k8s.io/v1", events_v1_pb2.Event, "pinnace.events.v1.EventsV1", events_v1_service_pb2,
    namespaced=True, short_names=("ev",),
)  # fmt: skip
"""EVENTS in another API version (pinnace.api.conversion)."""
PRIORITY_CLASSES = Resource(
    "priorityclasses", "PriorityClass", "scheduling.k8s.io/v1", scheduling_v1_pb2.PriorityClass,
    "pinnace.v1.PriorityClasses", priorityclasses_pb2, namespaced=False, short_names=("pc",),
)  # fmt: skip
LEASES = Resource(
    "leases", "Lease", "coordination.k8s.io/v1", coordination_v1_pb2.Lease, "pinnace.v1.Leases", leases_pb2,
    namespaced=True,
)  # fmt: skip
PERSISTENT_VOLUMES = Resource(
    "persistentvolumes", "PersistentVolume", "v1", core_v1_pb2.PersistentVolume,
    "pinnace.v1.PersistentVolumes", persistentvolumes_pb2, namespaced=False, short_names=("pv",),
)  # fmt: skip
PERSISTENT_VOLUME_CLAIMS = Resource(
    "persistentvolumeclaims", "PersistentVolumeClaim", "v1", core_v1_pb2.PersistentVolumeClaim,
    "pinnace.v1.PersistentVolumeClaims", persistentvolumeclaims_pb2, namespaced=True, short_names=("pvc",),
)  # fmt: skip
STORAGE_CLASSES = Resource(
    "storageclasses", "StorageClass", "storage.k8s.io/v1", storage_v1_pb2.StorageClass,
    "pinnace.v1.StorageClasses", storageclasses_pb2, namespaced=False, short_names=("sc",),
)  # fmt: skip
CSI_NODES = Resource(
    "csinodes", "CSINode", "storage.k8s.io/v1", storage_v1_pb2.CSINode, "pinnace.v1.CSINodes", csinodes_pb2,
    namespaced=False,
)  # fmt: skip
SERVICES = Resource(
    "services", "Service", "v1", core_v1_pb2.Service, "pinnace.v1.Services", services_pb2,
    namespaced=True, short_names=("svc",),
)  # fmt: skip
POD_DISRUPTION_BUDGETS = Resource(
    "poddisruptionbudgets", "PodDisruptionBudget", "policy/v1", policy_v1_pb2.PodDisruptionBudget,
    "pinnace.v1.PodDisruptionBudgets", poddisruptionbudgets_pb2, namespaced=True, short_names=("pdb",),
)  # fmt: skip
RESOURCE_QUOTAS = Resource(
    "resourcequotas", "ResourceQuota", "v1", core_v1_pb2.ResourceQuota, "pinnace.v1.ResourceQuotas", resourcequotas_pb2,
    namespaced=True, short_names=("quota",),
)  # fmt: skip
LIMIT_RANGES = Resource(
    "limitranges", "LimitRange", "v1", core_v1_pb2.LimitRange, "pinnace.v1.LimitRanges", limitranges_pb2,
    namespaced=True, short_names=("limits",),
)  # fmt: skip
ROLES = Resource(
    "roles", "Role", "rbac.authorization.k8s.io/v1", rbac_v1_pb2.Role, "pinnace.v1.Roles", roles_pb2,
    namespaced=True,
)  # fmt: skip
CLUSTER_ROLES = Resource(
    "clusterroles", "ClusterRole", "rbac.authorization.k8s.io/v1", rbac_v1_pb2.ClusterRole,
    "pinnace.v1.ClusterRoles", clusterroles_pb2, namespaced=False,
)  # fmt: skip
ROLE_BINDINGS = Resource(
    "rolebindings", "RoleBinding", "rbac.authorization.k8s.io/v1", rbac_v1_pb2.RoleBinding,
    "pinnace.v1.RoleBindings", rolebindings_pb2, namespaced=True,
)  # fmt: skip
CLUSTER_ROLE_BINDINGS = Resource(
    "clusterrolebindings", "ClusterRoleBinding", "rbac.authorization.k8s.io/v1", rbac_v1_pb2.ClusterRoleBinding,
    "pinnace.v1.ClusterRoleBindings", clusterrolebindings_pb2, namespaced=False,
)  # fmt: skip
REPLICA_SETS = Resource(
    "replicasets", "ReplicaSet", "apps/v1", apps_v1_pb2.ReplicaSet, "pinnace.v1.ReplicaSets", replicasets_pb2,
    namespaced=True, short_names=("rs",),
)  # fmt: skip
DEPLOYMENTS = Resource(
    "deployments", "Deployment", "apps/v1", apps_v1_pb2.Deployment, "pinnace.v1.Deployments", deployments_pb2,
    namespaced=True, short_names=("deploy",),
)  # fmt: skip
STATEFUL_SETS = Resource(
    "statefulsets", "StatefulSet", "apps/v1", apps_v1_pb2.StatefulSet, "pinnace.v1.StatefulSets", statefulsets_pb2,
    namespaced=True, short_names=("sts",),
)  # fmt: skip
JOBS = Resource(
    "jobs", "Job", "batch/v1", batch_v1_pb2.Job, "pinnace.v1.Jobs", jobs_pb2,
    namespaced=True,
)  # fmt: skip
CRON_JOBS = Resource(
    "cronjobs", "CronJob", "batch/v1", batch_v1_pb2.CronJob, "pinnace.v1.CronJobs", cronjobs_pb2,
    namespaced=True, short_names=("cj",),
)  # fmt: skip
DAEMON_SETS = Resource(
    "daemonsets", "DaemonSet", "apps/v1", apps_v1_pb2.DaemonSet, "pinnace.v1.DaemonSets", daemonsets_pb2,
    namespaced=True, short_names=("ds",),
)  # fmt: skip
CONTROLLER_REVISIONS = Resource(
    "controllerrevisions", "ControllerRevision", "apps/v1", apps_v1_pb2.ControllerRevision, "pinnace.v1.ControllerRevisions",
    controllerrevisions_pb2, namespaced=True,
)  # fmt: skip
ENDPOINT_SLICES = Resource(
    "endpointslices", "EndpointSlice", "discovery.k8s.io/v1", discovery_v1_pb2.EndpointSlice,
    "pinnace.v1.EndpointSlices", endpointslices_pb2, namespaced=True,
)  # fmt: skip
ENDPOINTS = Resource(
    "endpoints", "Endpoints", "v1", core_v1_pb2.Endpoints, "pinnace.v1.Endpoints", endpoints_pb2,
    namespaced=True, short_names=("ep",),
)  # fmt: skip
HORIZONTAL_POD_AUTOSCALERS = Resource(
    "horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling/v2", autoscaling_v2_pb2.HorizontalPodAutoscaler,
    "pinnace.v1.HorizontalPodAutoscalers", horizontalpodautoscalers_pb2, namespaced=True, short_names=("hpa",),
)  # fmt: skip
HORIZONTAL_POD_AUTOSCALERS_V1 = Resource(
    "horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling/v1", autoscaling_v1_pb2.HorizontalPodAutoscaler,
    "pinnace.autoscaling.v1.HorizontalPodAutoscalersV1", autoscaling_v1_service_pb2, namespaced=True, short_names=("hpa",),
)  # fmt: skip
"""HORIZONTAL_POD_AUTOSCALERS in another API version (pinnace.api.conversion)."""
API_SERVICES = Resource(
    "apiservices", "APIService", "apiregistration.k8s.io/v1", apiregistration_v1_pb2.APIService, "pinnace.v1.APIServices",
    apiservices_pb2, namespaced=False,
)  # fmt: skip
CONFIG_MAPS = Resource(
    "configmaps", "ConfigMap", "v1", core_v1_pb2.ConfigMap, "pinnace.v1.ConfigMaps", configmaps_pb2,
    namespaced=True, short_names=("cm",),
)  # fmt: skip
SECRETS = Resource(
    "secrets", "Secret", "v1", core_v1_pb2.Secret, "pinnace.v1.Secrets", secrets_pb2,
    namespaced=True,
)  # fmt: skip
SERVICE_ACCOUNTS = Resource(
    "serviceaccounts", "ServiceAccount", "v1", core_v1_pb2.ServiceAccount, "pinnace.v1.ServiceAccounts", serviceaccounts_pb2,
    namespaced=True, short_names=("sa",),
)  # fmt: skip
IP_ADDRESSES = Resource(
    "ipaddresses", "IPAddress", "networking.k8s.io/v1", networking_v1_pb2.IPAddress, "pinnace.v1.IPAddresses", ipaddresses_pb2,
    namespaced=False, short_names=("ip",),
)  # fmt: skip
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "customresourcedefinitions", "CustomResourceDefinition", "apiextensions.k8s.io/v1",
    apiextensions_v1_pb2.CustomResourceDefinition, "pinnace.v1.CustomResourceDefinitions", customresourcedefinitions_pb2,
    namespaced=False, short_names=("crd", "crds"),
)  # fmt: skip
SERVICE_CIDRS = Resource(
    "servicecidrs", "ServiceCIDR", "networking.k8s.io/v1", networking_v1_pb2.ServiceCIDR, "pinnace.v1.ServiceCIDRs",
    servicecidrs_pb2, namespaced=False,
)  # fmt: skip
MUTATING_WEBHOOK_CONFIGURATIONS = Resource(
    "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1",
    admissionregistration_v1_pb2.MutatingWebhookConfiguration, "pinnace.v1.MutatingWebhookConfigurations",
    mutatingwebhookconfigurations_pb2, namespaced=False,
)  # fmt: skip
VALIDATING_WEBHOOK_CONFIGURATIONS = Resource(
    "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1",
    admissionregistration_v1_pb2.ValidatingWebhookConfiguration, "pinnace.v1.ValidatingWebhookConfigurations",
    validatingwebhookconfigurations_pb2, namespaced=False,
)  # fmt: skip
VALIDATING_ADMISSION_POLICIES = Resource(
    "validatingadmissionpolicies", "ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1",
    admissionregistration_v1_pb2.ValidatingAdmissionPolicy, "pinnace.v1.ValidatingAdmissionPolicies",
    validatingadmissionpolicies_pb2, namespaced=False,
)  # fmt: skip
VALIDATING_ADMISSION_POLICY_BINDINGS = Resource(
    "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io/v1",
    admissionregistration_v1_pb2.ValidatingAdmissionPolicyBinding, "pinnace.v1.ValidatingAdmissionPolicyBindings",
    validatingadmissionpolicybindings_pb2, namespaced=False,
)  # fmt: skip
MUTATING_ADMISSION_POLICIES = Resource(
    "mutatingadmissionpolicies", "MutatingAdmissionPolicy", "admissionregistration.k8s.io/v1",
    admissionregistration_v1_pb2.MutatingAdmissionPolicy, "pinnace.v1.MutatingAdmissionPolicies",
    mutatingadmissionpolicies_pb2, namespaced=False,
)  # fmt: skip
MUTATING_ADMISSION_POLICY_BINDINGS = Resource(
    "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", "admissionregistration.k8s.io/v1",
    admissionregistration_v1_pb2.MutatingAdmissionPolicyBinding, "pinnace.v1.MutatingAdmissionPolicyBindings",
    mutatingadmissionpolicybindings_pb2, namespaced=False,
)  # fmt: skip
INGRESSES = Resource(
    "ingresses", "Ingress", "networking.k8s.io/v1", networking_v1_pb2.Ingress, "pinnace.v1.Ingresses", ingresses_pb2,
    namespaced=True, short_names=("ing",),
)  # fmt: skip
INGRESS_CLASSES = Resource(
    "ingressclasses", "IngressClass", "networking.k8s.io/v1", networking_v1_pb2.IngressClass, "pinnace.v1.IngressClasses",
    ingressclasses_pb2, namespaced=False,
)  # fmt: skip
NETWORK_POLICIES = Resource(
    "networkpolicies", "NetworkPolicy", "networking.k8s.io/v1", networking_v1_pb2.NetworkPolicy, "pinnace.v1.NetworkPolicies",
    networkpolicies_pb2, namespaced=True, short_names=("netpol",),
)  # fmt: skip

RUNTIME_CLASSES = Resource(
    "runtimeclasses", "RuntimeClass", "node.k8s.io/v1", node_v1_pb2.RuntimeClass, "pinnace.v1.RuntimeClasses",
    runtimeclasses_pb2, namespaced=False,
)  # fmt: skip

ALL: tuple[Resource[Any], ...] = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    PRIORITY_CLASSES,
    LEASES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE_CLASSES,
    CSI_NODES,
    SERVICES,
    POD_DISRUPTION_BUDGETS,
    RESOURCE_QUOTAS,
    LIMIT_RANGES,
    ROLES,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    REPLICA_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    JOBS,
    CRON_JOBS,
    DAEMON_SETS,
    CONTROLLER_REVISIONS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    HORIZONTAL_POD_AUTOSCALERS,
    API_SERVICES,
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
    IP_ADDRESSES,
    SERVICE_CIDRS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    INGRESSES,
    INGRESS_CLASSES,
    NETWORK_POLICIES,
    RUNTIME_CLASSES,
    CUSTOM_RESOURCE_DEFINITIONS,
)
_NOT_COLLECTED = (
    EVENTS, LEASES, ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS, SECRETS, IP_ADDRESSES, SERVICE_CIDRS,
)  # fmt: skip
COLLECTED = tuple(resource for resource in ALL if resource not in _NOT_COLLECTED)
"""The resources that the garbage collector manages. Events and leases expire by themselves. The API
servers delete IP addresses. Unlike in Kubernetes, RBAC objects are left to administrators, and the controllers cannot read
secrets. On other resources, a finalizer that waits for the garbage
collector is not allowed."""


_BY_KIND = {(resource.kind, resource.api_version): resource for resource in ALL}


def by_kind(kind: str, api_version: str) -> Resource[Any] | None:
    return _BY_KIND.get((kind, api_version))


def by_name(name: str) -> Resource[Any] | None:
    """Return the resource with this plural, singular, kind or short name (case-insensitive), or None."""
    wanted = name.lower()
    return next((r for r in ALL if wanted in names(r)), None)


def names(resource: Resource[Any]) -> Iterator[str]:
    yield from (resource.plural, resource.kind.lower(), *resource.short_names)


def node_port_key(port: int) -> str:
    """Return the key of a node port that a service uses (pinnace.apiserver.registry.allocation)."""
    return f"{NODE_PORTS_PREFIX}{port}"


def election_key(name: str) -> str:
    return ELECTIONS_PREFIX + name


def nomination_key(election: str) -> str:
    return NOMINATIONS_PREFIX + election


def candidates_prefix(election: str) -> str:
    """Return the prefix of the keys of all candidates of an election."""
    return f"{CANDIDATES_PREFIX}{election}/"


def candidate_key(election: str, session: int) -> str:
    return f"{candidates_prefix(election)}{session:x}"


def terms_prefix(election: str) -> str:
    """Return the prefix of the keys of all terms of an election."""
    return f"{TERMS_PREFIX}{election}/"


def term_key(election: str, token: int) -> str:
    """Return the etcd key of a term. The keys of an election sort by token."""
    return f"{terms_prefix(election)}{token:020d}"


def commit_key(server: str, chain: int) -> str:
    return f"{COMMITS_PREFIX}{server}/{chain}"


@dataclass(frozen=True, slots=True)
class Absent:
    kind: str
    plural: str
    """The plural in the capitalization of the kind."""
    instead: str
    """The alternative, for a hint."""
    short_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return, for example, "pinnace has no NetworkPolicies"."""
        return f"pinnace has no {self.plural}"


ABSENT = (
    Absent("CertificateSigningRequest", "CertificateSigningRequests", _CERTIFICATES, ("csr",)),
    Absent(
        "ComponentStatus",
        "componentstatuses",
        "`pinnace doctor` diagnoses a cluster; `pinnace status` shows a local cluster",
        ("cs",),
    ),
    Absent("CSIDriver", "CSIDrivers", _CLAIMS),
    Absent("CSIStorageCapacity", "CSIStorageCapacities", _CLAIMS),
    Absent("DeviceClass", "DeviceClasses", _DEVICES),
    Absent("FlowSchema", "FlowSchemas", "flow control is the API servers' own"),
    Absent("PodTemplate", "PodTemplates", "a Deployment or a Job has the template of its pods in its spec"),
    Absent("PriorityLevelConfiguration", "PriorityLevelConfigurations", "flow control is the API servers' own"),
    Absent("ReplicationController", "ReplicationControllers", _DEPLOYMENT, ("rc",)),
    Absent("ResourceClaim", "ResourceClaims", _DEVICES),
    Absent("ResourceClaimTemplate", "ResourceClaimTemplates", _DEVICES),
    Absent("ResourceSlice", "ResourceSlices", _DEVICES),
    Absent("VolumeAttachment", "VolumeAttachments", "`pinnace describe pod NAME` shows the volumes that a pod waits for"),
    Absent("VolumeAttributesClass", "VolumeAttributesClasses", _CLAIMS, ("vac",)),
)


def find_absent(name: str) -> Absent | None:
    """Return the missing Kubernetes kind with this plural, kind or short name (case-insensitive), or None."""
    wanted = name.lower()
    return next((item for item in ABSENT if wanted in (item.plural.lower(), item.kind.lower(), *item.short_names)), None)
