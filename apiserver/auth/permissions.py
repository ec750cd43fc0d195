"""The required permissions of all methods of the API. A server with a method without a permission does not start.

Most methods are standard verbs of a resource. Other methods are listed in `_SPECIAL`. A permission maps a request to actions
and targets, which have the attributes of Kubernetes' authorization.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#review-your-request-attributes
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.descriptor import MethodDescriptor

from pinnace.api.conversion import SERVED_VERSIONS
from pinnace.api.resources import ALL, DEFAULT_NAMESPACE, NAMESPACES, NODES, PODS, Resource
from pinnace.api.selectors import FIELDS, SelectorError, parse_fields


class Action(NamedTuple):
    """A verb on a resource. `resource` can include a subresource ("pods/status"). If it begins with a slash, it is a
    non-resource URL, and the group is empty."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        if self.resource.startswith("/"):
            return f"{self.verb} {self.resource}"
        return f'{self.verb} resource "{self.resource}" in API group "{self.group}"'


class Target(NamedTuple):
    """The objects of an action. An empty namespace means all namespaces or a cluster-scoped resource; an empty name means all
    names. Lists and watches also have their selectors, and a name if the field selector matches only one name."""

    namespace: str = ""
    name: str = ""
    labels: str = ""
    fields: str = ""


class Decision(NamedTuple):
    allowed: bool
    reason: str
    """The rule that allows the action, or an explanation of the denial, which can be empty."""


DENIED = Decision(False, "")
ANY_TARGET = Target()


ELECTIONS_GROUP = "pinnace.io"
REVIEWS_GROUP = "authorization.k8s.io"
AUTHENTICATION_GROUP = "authentication.k8s.io"
METRICS_GROUP = "metrics.k8s.io"
HEALTH, REFLECTION, VERSION = "/healthz", "/reflection", "/version"
"""Non-resource URLs of the health, reflection and version services."""
HEARTBEAT = Action("update", "leases", "coordination.k8s.io")
"""Required for each node of a fleet: a heartbeat replaces an update of the node's Lease."""
EXCHANGE = Action("create", "calls")
"""Not checked: each call of an Exchange needs its own permission."""
EXEC = Action("create", "pods/exec")
"""Checked after the first request of the stream, which names the pod."""
PORT_FORWARD = Action("create", "pods/portforward")
"""Checked as EXEC."""
CAMPAIGN = Action("campaign", "elections", ELECTIONS_GROUP)
"""Required to campaign in an election, and to write with its fencing token (pinnace.apiserver.registry.fencing)."""
CAMPAIGN_FOR = Action("campaign", "schedulers", ELECTIONS_GROUP)
"""Required to bind pods with a fencing token. The name is the pods' spec.schedulerName."""
BYPASS_FENCE = Action("bypass-fence", "pods/binding")
"""Required to bind pods without a fencing token. Such a binding succeeds even if the scheduler is no longer the leader."""
UNKNOWN = "unknown"
"""Replaces unknown resources and subresources of a request. Decisions are cached by action, and the text in a request can have
any length."""
NAME = "metadata.name"
MAX_NAMING = 1024
"""Maximum length of a field selector that is parsed for a name. The selector of a fleet can have 500,000 characters."""

Actions = Callable[[Any], Sequence[Action]]
Targets = Callable[[Any], Iterable[Target]]


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
    resource = _RESOURCES[service]
    if method.name == "Patch":
        return Permission(_patched(resource), _named(resource))
    verb, subresource, targets = _STANDARD[method.name]
    return Permission(_always(action_on(resource, verb, subresource)), targets(resource))


def action_on(resource: Resource[Any], verb: str, subresource: str = "") -> Action:
    return Action(verb, f"{resource.plural}/{subresource}" if subresource else resource.plural, resource.group)


def _always(action: Action) -> Actions:
    actions = (action,)
    return lambda request: actions


def _patched(resource: Resource[Any]) -> Actions:
    """Return the actions of Patch, by the subresource in the request."""
    known = {subresource: (action_on(resource, "patch", subresource),) for subresource in ("", "status", "resize")}
    other = (action_on(resource, "patch", UNKNOWN),)
    return lambda request: known.get(request.subresource, other)


def _place(resource: Resource[Any], namespace: str, name: str) -> Target:
    """Return the target of an object. The target of a Namespace is in the namespace itself, so a Role can grant access to it.

    Source:
    https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apiserver/pkg/endpoints/request/requestinfo.go
    """
    if resource is NAMESPACES:
        return Target(name, name)
    return Target(resource.home(namespace), name)


def _of_new(resource: Resource[Any]) -> Targets:
    """Return the targets of a create. A new Namespace is at the cluster scope."""
    if resource is NAMESPACES:
        return lambda request: (Target("", request.object.metadata.name),)
    return _of_object(resource)


def _of_object(resource: Resource[Any]) -> Targets:
    return lambda request: (_place(resource, request.object.metadata.namespace, request.object.metadata.name),)


def _of_items(resource: Resource[Any]) -> Targets:
    return lambda request: {_place(resource, each.metadata.namespace, each.metadata.name) for each in request.items}


def _named(resource: Resource[Any]) -> Targets:
    return lambda request: (_place(resource, request.namespace, request.name),)


def _named_items(resource: Resource[Any]) -> Targets:
    return lambda request: {_place(resource, each.namespace, each.name) for each in request.items}


def _printed(request: Any) -> Sequence[Action]:
    """Return the actions of Tables/List. A list of an unknown resource is allowed only for users with all permissions, so other
    users receive a denial instead of NotFound."""
    resource = _BY_PLURAL.get(request.resource)
    return (action_on(resource, "list") if resource is not None else Action("list", UNKNOWN),)


def _printed_of(request: Any) -> Iterable[Target]:
    resource = _BY_PLURAL.get(request.resource)
    if resource is None:
        return (Target(request.namespace, "", request.options.labelSelector, request.options.fieldSelector),)
    return (_narrowed(resource, request),)


def _selected(resource: Resource[Any]) -> Targets:
    """Return the targets of a list or watch. A field selector for one name sets the name of the target, so a rule with
    resourceNames can allow the request.

    Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources
    """
    return lambda request: (_narrowed(resource, request),)


def _collected(resource: Resource[Any]) -> Targets:
    """Return the target of DeleteCollection, which requires permission for all names, as in Kubernetes."""
    return lambda request: (_narrowed(resource, request)._replace(name=""),)


def _narrowed(resource: Resource[Any], request: Any) -> Target:
    fields = request.options.fieldSelector
    namespace = request.namespace if resource.namespaced else ""
    return Target(namespace, _only_name(resource, fields), request.options.labelSelector, fields)


def _only_name(resource: Resource[Any], selector: str) -> str:
    """Return the only name that a field selector matches; "" if it matches several names or is invalid. The call then reports
    the error of an invalid selector."""
    if len(selector) > MAX_NAMING or NAME not in selector:
        return ""
    try:
        names = parse_fields(selector, FIELDS[resource.plural]).allowed(NAME)
    except SelectorError:
        return ""
    return next(iter(names)) if names is not None and len(names) == 1 else ""


def _recorded(request: Any) -> Iterable[Target]:
    """Return the targets of Events/Record. The namespace of an event defaults to the one of its involvedObject."""
    return {
        Target(each.metadata.namespace or each.involvedObject.namespace or DEFAULT_NAMESPACE, each.metadata.name)
        for each in request.items
    }


def _bound(request: Any) -> Iterable[Target]:
    return (Target(request.binding.metadata.namespace, request.binding.metadata.name),)


def _items(request: Any) -> Iterable[Target]:
    """Return the targets of a batch of bindings or evictions."""
    return {Target(each.metadata.namespace, each.metadata.name) for each in request.items}


def _evicted(request: Any) -> Iterable[Target]:
    return (Target(request.eviction.metadata.namespace, request.eviction.metadata.name),)


def _elected(request: Any) -> Iterable[Target]:
    return (Target("", request.name),)


def _any_target(request: Any) -> Iterable[Target]:
    return (ANY_TARGET,)


def _ending(requests: Iterable[Any]) -> Sequence[Action]:
    """Return the actions of pod deletes. A delete with a disruption condition also requires permission to update the status."""
    return (_DELETE, _TELL) if any(each.HasField("disruption") for each in requests) else (_DELETE,)


def _binding(request: Any) -> Sequence[Action]:
    return (_BIND,) if request.HasField("fence") else (_BIND, BYPASS_FENCE)


_RESOURCES: Mapping[str, Resource[Any]] = {resource.service: resource for resource in (*ALL, *SERVED_VERSIONS)}
_BY_PLURAL: Mapping[str, Resource[Any]] = {resource.plural: resource for resource in ALL}
_STANDARD: Mapping[str, tuple[str, str, Callable[[Resource[Any]], Targets]]] = {
    "Create": ("create", "", _of_new),
    "CreateBatch": ("create", "", _of_items),
    "Get": ("get", "", _named),
    "List": ("list", "", _selected),
    "Watch": ("watch", "", _selected),
    "Update": ("update", "", _of_object),
    "UpdateStatus": ("update", "status", _of_object),
    "UpdateStatusBatch": ("update", "status", _of_items),
    "Finalize": ("update", "finalize", _of_object),
    "UpdateResize": ("update", "resize", _of_object),
    "GetScale": ("get", "scale", _named),
    "UpdateScale": ("update", "scale", _of_object),
    "PatchScale": ("patch", "scale", _named),
    "Delete": ("delete", "", _named),
    "DeleteBatch": ("delete", "", _named_items),
    "DeleteCollection": ("deletecollection", "", _collected),
}
_BIND = Action("create", "pods/binding")
_EVICT = Action("create", "pods/eviction")
_DELETE, _TELL = Action("delete", "pods"), Action("update", "pods/status")
_SPECIAL: Mapping[str, Permission] = {
    "pinnace.v1.Pods/Delete": Permission(lambda request: _ending([request]), _named(PODS)),
    "pinnace.v1.Pods/DeleteBatch": Permission(lambda request: _ending(request.items), _named_items(PODS)),
    "pinnace.v1.Pods/Bind": Permission(_binding, _bound),
    "pinnace.v1.Pods/BindBatch": Permission(_binding, _items),
    "pinnace.v1.Pods/Evict": Permission(_always(_EVICT), _evicted),
    "pinnace.v1.Pods/EvictBatch": Permission(_always(_EVICT), _items),
    "pinnace.v1.Pods/Logs": Permission(_always(Action("get", "pods/log")), _named(PODS)),
    "pinnace.v1.Pods/Exec": Permission(_always(EXEC), None),
    "pinnace.v1.Pods/Attach": Permission(_always(Action("create", "pods/attach")), _named(PODS)),
    "pinnace.v1.Pods/PortForward": Permission(_always(PORT_FORWARD), None),
    "pinnace.v1.Calls/Exchange": Permission(_always(EXCHANGE), None),
    "pinnace.v1.Nodes/Heartbeat": Permission(_always(HEARTBEAT), None),
    "pinnace.v1.Events/Record": Permission(_always(Action("create", "events")), _recorded),
    "pinnace.v1.Elections/Campaign": Permission(_always(CAMPAIGN), None),
    "pinnace.v1.Elections/Get": Permission(_always(Action("get", "elections", ELECTIONS_GROUP)), _elected),
    "pinnace.v1.Elections/List": Permission(_always(Action("list", "elections", ELECTIONS_GROUP)), _any_target),
    "pinnace.v1.Elections/Watch": Permission(_always(Action("watch", "elections", ELECTIONS_GROUP)), _elected),
    "pinnace.v1.Elections/History": Permission(_always(Action("get", "elections", ELECTIONS_GROUP)), _elected),
    "pinnace.v1.Elections/Transfer": Permission(_always(Action("transfer", "elections", ELECTIONS_GROUP)), _elected),
    "pinnace.v1.Keys/List": Permission(_always(Action("list", "keys", ELECTIONS_GROUP)), _any_target),
    "pinnace.v1.Keys/Watch": Permission(_always(Action("watch", "keys", ELECTIONS_GROUP)), _any_target),
    "pinnace.v1.Tables/List": Permission(_printed, _printed_of),
    "pinnace.v1.NodeMetrics/List": Permission(_always(Action("list", NODES.plural, METRICS_GROUP)), _selected(NODES)),
    "pinnace.v1.PodMetrics/List": Permission(_always(Action("list", PODS.plural, METRICS_GROUP)), _selected(PODS)),
    "pinnace.v1.Version/Get": Permission(_always(Action("get", VERSION)), _any_target),
    "grpc.health.v1.Health/Check": Permission(_always(Action("get", HEALTH)), _any_target),
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Permission(
        _always(Action("get", REFLECTION)), _any_target
    ),
    "pinnace.v1.Authorization/SelfSubjectReview": Permission(
        _always(Action("create", "selfsubjectreviews", AUTHENTICATION_GROUP)), _any_target
    ),
    "pinnace.v1.Authorization/SelfSubjectAccessReview": Permission(
        _always(Action("create", "selfsubjectaccessreviews", REVIEWS_GROUP)), _any_target
    ),
    "pinnace.v1.Authorization/SelfSubjectRulesReview": Permission(
        _always(Action("create", "selfsubjectrulesreviews", REVIEWS_GROUP)), _any_target
    ),
    "pinnace.v1.Authorization/SubjectAccessReview": Permission(
        _always(Action("create", "subjectaccessreviews", REVIEWS_GROUP)), _any_target
    ),
    "pinnace.v1.Authorization/TokenReview": Permission(
        _always(Action("create", "tokenreviews", AUTHENTICATION_GROUP)), _any_target
    ),
}
