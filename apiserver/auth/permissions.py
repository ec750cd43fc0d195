"""The required permissions of all methods of the API. A server with a method without a permission does not start.

Most methods are standard verbs of a resource. Other methods are listed in `_SPECIAL`. A permission maps a request to actions
and targets, which have the attributes of Kubernetes' authorization.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#review-your-request-attributes
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.descriptor import MethodDescriptor

from pinnace.api.conversion import SERVED_VERSIONS
from pinnace.api.resources import ALL, DEFAULT_NAMESPACE, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, Resource
from pinnace.api.selectors import SelectorError, parse_fields, selectable_fields

ELECTIONS_GROUP = "pinnace.io"
REVIEWS_GROUP = "authorization.k8s.io"
AUTHENTICATION_GROUP = "authentication.k8s.io"
METRICS_GROUP = "metrics.k8s.io"
KEY_SET = "/openid/v1/jwks"
"""The non-resource URL of the keys that verify tokens of service accounts."""
HEALTH, REFLECTION, VERSION = "/healthz", "/reflection", "/version"
"""Non-resource URLs of the health, reflection and version services."""

UNKNOWN = "unknown"
"""Replaces unknown resources and subresources of a request. Decisions are cached by action, and the text in a request can have
any length."""
NAME = "metadata.name"
MAX_NAMING = 1024
"""Maximum length of a field selector that is parsed for a name. The selector of a fleet can have 500,000 characters."""

_RESOURCES: Mapping[str, Resource[Any]] = {resource.service: resource for resource in (*ALL, *SERVED_VERSIONS)}
_BY_PLURAL: Mapping[str, Resource[Any]] = {resource.plural: resource for resource in ALL}


class ResourceAction(NamedTuple):
    """A verb on a resource. `resource` can include a subresource ("pods/status"). If it begins with a slash, it is a
    non-resource URL, and the group is empty."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        if self.resource.startswith("/"):
            return f"{self.verb} {self.resource}"
        return f'{self.verb} resource "{self.resource}" in API group "{self.group}"'


class ActionTarget(NamedTuple):
    """The objects of an action. An empty namespace means all namespaces or a cluster-scoped resource; an empty name means all
    names. Lists and watches also have their selectors, and a name if the field selector matches only one name."""

    namespace: str = ""
    name: str = ""
    labels: str = ""
    fields: str = ""


class AuthorizationDecision(NamedTuple):
    allowed: bool
    reason: str
    """The rule that allows the action, or an explanation of the denial, which can be empty."""


DENIED = AuthorizationDecision(False, "")
ANY_TARGET = ActionTarget()


HEARTBEAT = ResourceAction("update", "leases", "coordination.k8s.io")
"""Required for each node of a fleet: a heartbeat replaces an update of the node's Lease."""
EXCHANGE = ResourceAction("create", "calls")
"""Not checked: each call of an Exchange needs its own permission."""
EXEC = ResourceAction("create", "pods/exec")
"""Checked after the first request of the stream, which names the pod."""
PORT_FORWARD = ResourceAction("create", "pods/portforward")
"""Checked as EXEC."""
CAMPAIGN = ResourceAction("campaign", "elections", ELECTIONS_GROUP)
"""Required to campaign in an election, and to write with its fencing token (pinnace.apiserver.registry.fencing)."""
CAMPAIGN_FOR = ResourceAction("campaign", "schedulers", ELECTIONS_GROUP)
"""Required to bind pods with a fencing token. The name is the pods' spec.schedulerName."""
CREATE_TOKEN = ResourceAction("create", "serviceaccounts/token")
"""Required to get a token of a service account. The name is that of the account."""
BYPASS_FENCE = ResourceAction("bypass-fence", "pods/binding")
"""Required to bind pods without a fencing token. Such a binding succeeds even if the scheduler is no longer the leader."""

Actions = Callable[[Any], Sequence[ResourceAction]]
Targets = Callable[[Any], Iterable[ActionTarget]]


class Permission(NamedTuple):
    """The actions and targets of a request. All actions must be allowed. If `targets` is None, requests are streamed, and the
    service authorizes each one."""

    actions: Actions
    targets: Targets | None


def permission_of(method: MethodDescriptor) -> Permission:
    """Return the permission of a method. Raises LookupError if it has none."""
    service: str = method.containing_service.full_name
    special = _SPECIAL.get(f"{service}/{method.name}")
    if special is not None:
        return special
    return standard_permission(_RESOURCES[service], method.name)


def standard_permission(resource: Resource[Any], method: str) -> Permission:
    """Return the permission of a standard method of a resource. Raises LookupError if it is not a standard one."""
    if method == "Patch":
        return Permission(_patch_actions(resource), _named_target(resource))
    verb, subresource, targets = _STANDARD[method]
    return Permission(_fixed_action(resource_action(resource, verb, subresource)), targets(resource))


def resource_action(resource: Resource[Any], verb: str, subresource: str = "") -> ResourceAction:
    return ResourceAction(verb, f"{resource.plural}/{subresource}" if subresource else resource.plural, resource.group)


def _fixed_action(action: ResourceAction) -> Actions:
    actions = (action,)
    return lambda request: actions


def _patch_actions(resource: Resource[Any]) -> Actions:
    """Return the actions of Patch, by the subresource in the request."""
    known = {
        subresource: (resource_action(resource, "patch", subresource),)
        for subresource in ("", "status", "resize", "ephemeralcontainers")
    }
    other = (resource_action(resource, "patch", UNKNOWN),)
    return lambda request: known.get(request.subresource, other)


def _target_of(resource: Resource[Any], namespace: str, name: str) -> ActionTarget:
    """Return the target of an object. The target of a Namespace is in the namespace itself, so a Role can grant access to it.

    Source:
    https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apiserver/pkg/endpoints/request/requestinfo.go
    """
    if resource is NAMESPACES:
        return ActionTarget(name, name)
    return ActionTarget(resource.home(namespace), name)


def _create_targets(resource: Resource[Any]) -> Targets:
    """Return the targets of a create. A new Namespace is at the cluster scope."""
    if resource is NAMESPACES:
        return lambda request: (ActionTarget("", request.object.metadata.name),)
    return _object_target(resource)


def _object_target(resource: Resource[Any]) -> Targets:
    return lambda request: (_target_of(resource, request.object.metadata.namespace, request.object.metadata.name),)


def _batch_targets(resource: Resource[Any]) -> Targets:
    return lambda request: {_target_of(resource, obj.metadata.namespace, obj.metadata.name) for obj in request.items}


def _named_target(resource: Resource[Any]) -> Targets:
    return lambda request: (_target_of(resource, request.namespace, request.name),)


def _named_batch_targets(resource: Resource[Any]) -> Targets:
    return lambda request: {_target_of(resource, item.namespace, item.name) for item in request.items}


def _table_actions(request: Any) -> Sequence[ResourceAction]:
    """Return the actions of Tables/List. A list of an unknown resource is allowed only for users with all permissions, so other
    users receive a denial instead of NotFound."""
    resource = _BY_PLURAL.get(request.resource)
    return (resource_action(resource, "list") if resource is not None else ResourceAction("list", UNKNOWN),)


def _table_targets(request: Any) -> Iterable[ActionTarget]:
    resource = _BY_PLURAL.get(request.resource)
    if resource is None:
        return (ActionTarget(request.namespace, "", request.options.labelSelector, request.options.fieldSelector),)
    return (_selector_target(resource, request),)


def _selected_targets(resource: Resource[Any]) -> Targets:
    """Return the targets of a list or watch. A field selector for one name sets the name of the target, so a rule with
    resourceNames can allow the request.

    Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources
    """
    return lambda request: (_selector_target(resource, request),)


def _collection_target(resource: Resource[Any]) -> Targets:
    """Return the target of DeleteCollection, which requires permission for all names, as in Kubernetes."""
    return lambda request: (_selector_target(resource, request)._replace(name=""),)


def _selector_target(resource: Resource[Any], request: Any) -> ActionTarget:
    fields = request.options.fieldSelector
    namespace = request.namespace if resource.namespaced else ""
    return ActionTarget(namespace, _name_in_field_selector(resource, fields), request.options.labelSelector, fields)


def _name_in_field_selector(resource: Resource[Any], selector: str) -> str:
    """Return the only name that a field selector matches; "" if it matches several names or is invalid. The call then reports
    the error of an invalid selector."""
    if len(selector) > MAX_NAMING or NAME not in selector:
        return ""
    try:
        names = parse_fields(selector, selectable_fields(resource)).allowed(NAME)
    except SelectorError:
        return ""
    return next(iter(names)) if names is not None and len(names) == 1 else ""


def _event_targets(request: Any) -> Iterable[ActionTarget]:
    """Return the targets of Events/Record. The namespace of an event defaults to the one of its involvedObject."""
    return {
        ActionTarget(item.metadata.namespace or item.involvedObject.namespace or DEFAULT_NAMESPACE, item.metadata.name)
        for item in request.items
    }


def _binding_target(request: Any) -> Iterable[ActionTarget]:
    return (ActionTarget(request.binding.metadata.namespace, request.binding.metadata.name),)


def _pod_batch_targets(request: Any) -> Iterable[ActionTarget]:
    """Return the targets of a batch of bindings or evictions."""
    return {ActionTarget(item.metadata.namespace, item.metadata.name) for item in request.items}


def _eviction_target(request: Any) -> Iterable[ActionTarget]:
    return (ActionTarget(request.eviction.metadata.namespace, request.eviction.metadata.name),)


def _election_target(request: Any) -> Iterable[ActionTarget]:
    return (ActionTarget("", request.name),)


def _any_target(request: Any) -> Iterable[ActionTarget]:
    return (ANY_TARGET,)


def _delete_pod_actions(requests: Iterable[Any]) -> Sequence[ResourceAction]:
    """Return the actions of pod deletes. A delete with a disruption condition also requires permission to update the status."""
    return (_DELETE_POD, _UPDATE_POD_STATUS) if any(delete.HasField("disruption") for delete in requests) else (_DELETE_POD,)


def _binding_actions(request: Any) -> Sequence[ResourceAction]:
    return (_BIND_POD,) if request.HasField("fence") else (_BIND_POD, BYPASS_FENCE)


_STANDARD: Mapping[str, tuple[str, str, Callable[[Resource[Any]], Targets]]] = {
    "Create": ("create", "", _create_targets),
    "CreateBatch": ("create", "", _batch_targets),
    "Get": ("get", "", _named_target),
    "List": ("list", "", _selected_targets),
    "Watch": ("watch", "", _selected_targets),
    "Update": ("update", "", _object_target),
    "UpdateStatus": ("update", "status", _object_target),
    "UpdateStatusBatch": ("update", "status", _batch_targets),
    "Finalize": ("update", "finalize", _object_target),
    "UpdateResize": ("update", "resize", _object_target),
    "UpdateEphemeralContainers": ("update", "ephemeralcontainers", _object_target),
    "GetScale": ("get", "scale", _named_target),
    "UpdateScale": ("update", "scale", _object_target),
    "PatchScale": ("patch", "scale", _named_target),
    "Delete": ("delete", "", _named_target),
    "DeleteBatch": ("delete", "", _named_batch_targets),
    "DeleteCollection": ("deletecollection", "", _collection_target),
}
_BIND_POD = ResourceAction("create", "pods/binding")
_EVICT_POD = ResourceAction("create", "pods/eviction")
_DELETE_POD, _UPDATE_POD_STATUS = ResourceAction("delete", "pods"), ResourceAction("update", "pods/status")
_SPECIAL: Mapping[str, Permission] = {
    "pinnace.v1.Pods/Delete": Permission(lambda request: _delete_pod_actions([request]), _named_target(PODS)),
    "pinnace.v1.Pods/DeleteBatch": Permission(lambda request: _delete_pod_actions(request.items), _named_batch_targets(PODS)),
    "pinnace.v1.Pods/Bind": Permission(_binding_actions, _binding_target),
    "pinnace.v1.Pods/BindBatch": Permission(_binding_actions, _pod_batch_targets),
    "pinnace.v1.Pods/Evict": Permission(_fixed_action(_EVICT_POD), _eviction_target),
    "pinnace.v1.Pods/EvictBatch": Permission(_fixed_action(_EVICT_POD), _pod_batch_targets),
    "pinnace.v1.Pods/Logs": Permission(_fixed_action(ResourceAction("get", "pods/log")), _named_target(PODS)),
    "pinnace.v1.Pods/Exec": Permission(_fixed_action(EXEC), None),
    "pinnace.v1.Pods/Attach": Permission(_fixed_action(ResourceAction("create", "pods/attach")), _named_target(PODS)),
    "pinnace.v1.Pods/PortForward": Permission(_fixed_action(PORT_FORWARD), None),
    "pinnace.v1.Calls/Exchange": Permission(_fixed_action(EXCHANGE), None),
    "pinnace.v1.Nodes/Heartbeat": Permission(_fixed_action(HEARTBEAT), None),
    "pinnace.v1.Events/Record": Permission(_fixed_action(ResourceAction("create", "events")), _event_targets),
    "pinnace.v1.Elections/Campaign": Permission(_fixed_action(CAMPAIGN), None),
    "pinnace.v1.Elections/Get": Permission(
        _fixed_action(ResourceAction("get", "elections", ELECTIONS_GROUP)), _election_target
    ),
    "pinnace.v1.Elections/List": Permission(_fixed_action(ResourceAction("list", "elections", ELECTIONS_GROUP)), _any_target),
    "pinnace.v1.Elections/Watch": Permission(
        _fixed_action(ResourceAction("watch", "elections", ELECTIONS_GROUP)), _election_target
    ),
    "pinnace.v1.Elections/History": Permission(
        _fixed_action(ResourceAction("get", "elections", ELECTIONS_GROUP)), _election_target
    ),
    "pinnace.v1.Elections/Transfer": Permission(
        _fixed_action(ResourceAction("transfer", "elections", ELECTIONS_GROUP)), _election_target
    ),
    "pinnace.v1.Keys/List": Permission(_fixed_action(ResourceAction("list", "keys", ELECTIONS_GROUP)), _any_target),
    "pinnace.v1.Keys/Watch": Permission(_fixed_action(ResourceAction("watch", "keys", ELECTIONS_GROUP)), _any_target),
    "pinnace.v1.Tables/List": Permission(_table_actions, _table_targets),
    "pinnace.v1.Tokens/Create": Permission(_fixed_action(CREATE_TOKEN), _named_target(SERVICE_ACCOUNTS)),
    "pinnace.v1.Tokens/GetIssuer": Permission(_fixed_action(ResourceAction("get", KEY_SET)), _any_target),
    "pinnace.v1.NodeMetrics/List": Permission(
        _fixed_action(ResourceAction("list", NODES.plural, METRICS_GROUP)), _selected_targets(NODES)
    ),
    "pinnace.v1.PodMetrics/List": Permission(
        _fixed_action(ResourceAction("list", PODS.plural, METRICS_GROUP)), _selected_targets(PODS)
    ),
    "pinnace.v1.Version/Get": Permission(_fixed_action(ResourceAction("get", VERSION)), _any_target),
    "grpc.health.v1.Health/Check": Permission(_fixed_action(ResourceAction("get", HEALTH)), _any_target),
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Permission(
        _fixed_action(ResourceAction("get", REFLECTION)), _any_target
    ),
    "pinnace.v1.Authorization/SelfSubjectReview": Permission(
        _fixed_action(ResourceAction("create", "selfsubjectreviews", AUTHENTICATION_GROUP)), _any_target
    ),
    "pinnace.v1.Authorization/SelfSubjectAccessReview": Permission(
        _fixed_action(ResourceAction("create", "selfsubjectaccessreviews", REVIEWS_GROUP)), _any_target
    ),
    "pinnace.v1.Authorization/SelfSubjectRulesReview": Permission(
        _fixed_action(ResourceAction("create", "selfsubjectrulesreviews", REVIEWS_GROUP)), _any_target
    ),
    "pinnace.v1.Authorization/SubjectAccessReview": Permission(
        _fixed_action(ResourceAction("create", "subjectaccessreviews", REVIEWS_GROUP)), _any_target
    ),
    "pinnace.v1.Authorization/TokenReview": Permission(
        _fixed_action(ResourceAction("create", "tokenreviews", AUTHENTICATION_GROUP)), _any_target
    ),
}
