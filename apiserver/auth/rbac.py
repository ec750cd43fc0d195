"""Role-based access control: roles contain rules, and bindings grant roles to users and groups. The default is to deny.

The decisions for one user and action are computed once for all names. They are cached until a ClusterRole, or a role or binding
in the same scope, changes. A change in one namespace does not invalidate the cache of another. Each version of a binding is
parsed once, because a binding can have thousands of subjects and change often.

A ClusterRole with an aggregationRule has, recursively, the rules of all selected roles, and no rules of its own. The rules are
computed when they are used, so that a change takes effect at once. `pinnace.apiserver.services.clusterroles` also stores them.

`RuleCover` reports whether a set of rules covers another rule, to prevent privilege escalation. One rule can allow millions of
combinations of verb, group and resource. So sets of rules are bit masks: `&` of the masks of a verb, a group and a resource
gives the rules that allow the combination.

Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/

The default roles and bindings have Kubernetes' names. Each server restores missing parts at start, and keeps additions of
administrators. Objects with the annotation rbac.authorization.kubernetes.io/autoupdate: "false" are not changed.

    view --> edit --> admin      each role aggregates the previous one, and all roles with the label
                                 rbac.authorization.k8s.io/aggregate-to-<role>: "true", such as system:aggregate-to-<role>

Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, count, product
from typing import Any, NamedTuple

from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef
from pinnace.api.resources import (
    ALL,
    API_SERVICES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    COLLECTED,
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    CSI_NODES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    EVENTS_V1,
    HORIZONTAL_POD_AUTOSCALERS,
    INGRESSES,
    JOBS,
    LEASES,
    LIMIT_RANGES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    Resource,
)
from pinnace.api.selectors import from_message
from pinnace.api.users import AUTHENTICATED, UNAUTHENTICATED, parse_service_account, service_account_user
from pinnace.api.users import SERVICE_ACCOUNTS as ALL_SERVICE_ACCOUNTS
from pinnace.api.wellknown import CONTROLLERS_ELECTION, SCHEDULER_ELECTION
from pinnace.apiserver.auth.authentication import MASTERS, User
from pinnace.apiserver.auth.permissions import (
    AUTHENTICATION_GROUP,
    DENIED,
    ELECTIONS_GROUP,
    HEALTH,
    KEY_SET,
    METRICS_GROUP,
    REFLECTION,
    REVIEWS_GROUP,
    VERSION,
    ActionTarget,
    AuthorizationDecision,
    ResourceAction,
)
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.cacher.store import CacheEntry, SelectionPredicate

ListEntries = Callable[[], Sequence[CacheEntry[Any]]]
"""Returns the current objects of one kind, sorted by key."""

WILDCARD = "*"
ALL_RULES = (
    PolicyRule(verbs=[WILDCARD], apiGroups=[WILDCARD], resources=[WILDCARD]),
    PolicyRule(verbs=[WILDCARD], nonResourceURLs=[WILDCARD]),
)
MAX_REMEMBERED = 10_000
"""Maximum number of cached extents, one for each user, action and namespace."""
MAX_NAMES = 100_000
"""Maximum number of object names in all cached extents. A role can have thousands of names."""
MAX_ACTIONS = 1_000
"""Maximum number of actions whose rules are cached. The methods of the API need fewer, but access reviews can contain any
action.
"""
MAX_SCOPES = 10_000
"""Maximum number of namespaces whose bindings are cached."""

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_BOOTSTRAPPING = "kubernetes.io/bootstrapping"
_GROUP = "rbac.authorization.k8s.io"
_AGGREGATE_TO = f"{_GROUP}/aggregate-to-"
_AGGREGATED_PREFIX = "system:aggregate-to-"
"""The names of roles that contain the default rules of aggregated roles. Denials name the aggregated roles only."""
_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete", "deletecollection")
_READ_BY_SCHEDULER = (
    NODES, NAMESPACES, PRIORITY_CLASSES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, CSI_NODES, SERVICES,
    POD_DISRUPTION_BUDGETS,
)  # fmt: skip
"""Resources that the scheduler reads, other than pods."""
_EDITABLE = (
    PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, POD_DISRUPTION_BUDGETS, DEPLOYMENTS, REPLICA_SETS, JOBS, CONFIG_MAPS,
    SERVICE_ACCOUNTS, INGRESSES, NETWORK_POLICIES, STATEFUL_SETS, DAEMON_SETS, CRON_JOBS, HORIZONTAL_POD_AUTOSCALERS,
)  # fmt: skip
_VIEWABLE = (*_EDITABLE, LIMIT_RANGES, RESOURCE_QUOTAS, EVENTS, ENDPOINT_SLICES, ENDPOINTS, CONTROLLER_REVISIONS)
"""Namespaced resources that the role view can read. As in Kubernetes, secrets are excluded."""
_SCALABLE = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)
_ALL_BUT_SECRETS = (*(resource for resource in ALL if resource is not SECRETS), EVENTS_V1)
_STATUS_OF_CONTROLLERS = (
    NAMESPACES, PODS, NODES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, RESOURCE_QUOTAS, POD_DISRUPTION_BUDGETS, DEPLOYMENTS,
    REPLICA_SETS, JOBS, STATEFUL_SETS, DAEMON_SETS, CRON_JOBS, HORIZONTAL_POD_AUTOSCALERS, API_SERVICES,
)  # fmt: skip
"""Resources whose status controllers write."""
_CREATED_BY_CONTROLLERS = (
    PODS, REPLICA_SETS, JOBS, CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, ENDPOINT_SLICES, ENDPOINTS, SERVICE_ACCOUNTS,
    CONFIG_MAPS, API_SERVICES, PERSISTENT_VOLUMES, STORAGE_CLASSES,
)  # fmt: skip
_READ_METRICS = PolicyRule(verbs=_READ, apiGroups=[METRICS_GROUP], resources=[PODS.plural, NODES.plural])
"""Source: https://github.com/kubernetes-sigs/metrics-server, the role system:aggregated-metrics-reader."""

_INFORMATION = (HEALTH, "/livez", "/readyz", VERSION, f"{VERSION}/")
_ISSUER_DISCOVERY = "system:service-account-issuer-discovery"
_ISSUER = (
    "/.well-known/openid-configuration", "/.well-known/openid-configuration/", KEY_SET, f"{KEY_SET}/",
)  # fmt: skip
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", REFLECTION)
_MONITORING = (
    HEALTH, f"{HEALTH}/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*",
)  # fmt: skip
_KEYS = PolicyRule(verbs=["list", "watch"], apiGroups=[ELECTIONS_GROUP], resources=["keys"])
"""The keys of the store without secrets (pinnace.apiserver.services.keys). The gateway shows them to users with this
permission."""


class ParsedBinding(NamedTuple):
    """The parsed form of one version of a binding."""

    name: str
    """The name of the binding, with the namespace and a slash before it if it has a namespace."""
    role: RoleRef
    users: frozenset[str]
    groups: frozenset[str]
    accounts: frozenset[str] = frozenset()
    """The user names of service accounts."""

    def subject(self, user: User) -> str | None:
        """Return the subject that matches the user, such as 'Group "dev"'; None if no subject matches."""
        if user.name in self.users:
            return f'User "{user.name}"'
        if user.name in self.accounts and (account := parse_service_account(user.name)) is not None:
            return f'ServiceAccount "{account.name}/{account.namespace}"'
        group = next((group for group in user.groups if group in self.groups), None)
        return f'Group "{group}"' if group is not None else None


class NamespaceBindings:
    """The roles and bindings of one namespace, or of the cluster scope. The owner sets `seen`, the cache versions at the last
    read, and `stamp`, which changes when the roles or bindings change. A result is valid while the stamp is the same."""

    def __init__(self, bindings: ListEntries, roles: ListEntries) -> None:
        self.seen: tuple[int, ...] = ()
        self.stamp = 0
        self._list_bindings = bindings
        self._list_roles = roles
        self._roles: Sequence[CacheEntry[Any]] = ()
        self._bindings: Sequence[CacheEntry[Any]] = ()
        self._bound: Sequence[ParsedBinding] = ()

    @property
    def empty(self) -> bool:
        return not self._bound

    def refresh(self) -> bool:
        """Read the current roles and bindings. Return True if they have changed."""
        bindings, roles = self._list_bindings(), self._list_roles()
        if _same_entries(bindings, self._bindings) and _same_entries(roles, self._roles):
            return False
        read = {entry.key: (entry, bound) for entry, bound in zip(self._bindings, self._bound, strict=True)}
        self._bound = [_parse_binding(entry, *read.get(entry.key, (None, None))) for entry in bindings]
        self._bindings, self._roles = bindings, roles
        return True

    def bindings_of(self, user: User) -> Iterator[tuple[ParsedBinding, str]]:
        """Yield the bindings of the user with the matching subject. Of several bindings with the same role, only the first is
        returned."""
        roles = set[tuple[str, str]]()
        for bound in self._bound:
            role = (bound.role.kind, bound.role.name)
            if role not in roles and (subject := bound.subject(user)) is not None:
                roles.add(role)
                yield bound, subject


def _same_entries(entries: Sequence[CacheEntry[Any]], others: Sequence[CacheEntry[Any]]) -> bool:
    return len(entries) == len(others) and all(map(_same_version, entries, others))


def _same_version(entry: CacheEntry[Any], other: CacheEntry[Any]) -> bool:
    """Report whether both are the same version of the same object."""
    return entry is other


def _parse_binding(entry: CacheEntry[Any], before: CacheEntry[Any] | None, bound: ParsedBinding | None) -> ParsedBinding:
    """Parse a binding. `bound` is the parsed form of the version `before`, and is reused if the binding has not changed."""
    if bound is not None and entry is before:
        return bound
    binding: RoleBinding = entry.parse_uncached()
    metadata, users, groups, accounts = binding.metadata, set[str](), set[str](), set[str]()
    for subject in binding.subjects:
        match subject.kind:
            case "User":
                users.add(subject.name)
            case "Group":
                groups.add(subject.name)
            case "ServiceAccount" if namespace := subject.namespace or metadata.namespace:
                accounts.add(service_account_user(namespace, subject.name))
    role = RoleRef()
    role.CopyFrom(binding.roleRef)  # a reference to the field would keep the whole binding in memory
    name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    return ParsedBinding(name, role, frozenset(users), frozenset(groups), frozenset(accounts))


@dataclass(slots=True)
class AllowedObjects:
    """The objects on which a user is allowed to perform an action, in one namespace or cluster-wide. Values are reasons: those
    of the first rule found."""

    everything: str = ""
    names: dict[str, str] = field(default_factory=dict)

    def reason_for_name(self, name: str) -> str:
        """Return the reason for a name; "" if the action is denied."""
        return self.everything or self.names.get(name, "")


class ActionDecisions:
    """The decisions for one user and action. The extent of a namespace is computed when it is first used."""

    def __init__(self, extent: Callable[[str], AllowedObjects]) -> None:
        self._allowed_objects = extent
        self._wide = extent("")
        self._local: dict[str, AllowedObjects] = {}

    @property
    def reason_for_all(self) -> str:
        """The reason, if the action is allowed on all objects of the cluster; else ""."""
        return self._wide.everything

    def decide(self, target: ActionTarget) -> AuthorizationDecision:
        namespace, name = target.namespace, target.name
        reason = self._wide.reason_for_name(name) or (self._allowed_in(namespace).reason_for_name(name) if namespace else "")
        return AuthorizationDecision(True, reason) if reason else DENIED

    def _allowed_in(self, namespace: str) -> AllowedObjects:
        allowed = self._local.get(namespace)
        if allowed is None:
            allowed = self._local[namespace] = self._allowed_objects(namespace)
        return allowed


class Grant(NamedTuple):
    """The rules that a binding grants to a user."""

    rules: Sequence[PolicyRule]
    reason: str


class RbacAuthorizer:
    """The RBAC authorizer. It reads roles and bindings from the watch cache."""

    def __init__(
        self,
        roles: ResourceCache[Role],
        cluster_roles: ResourceCache[ClusterRole],
        bindings: ResourceCache[RoleBinding],
        cluster_bindings: ResourceCache[ClusterRoleBinding],
    ) -> None:
        self._roles = roles
        self._cluster_roles = cluster_roles
        self._bindings = bindings
        self._cluster_bindings = cluster_bindings
        self._scopes: dict[str, NamespaceBindings] = {}
        self._stamps = count(1)
        self._extents: dict[tuple[str, User, ResourceAction], tuple[int, AllowedObjects]] = {}
        self._names = 0
        self._gathered: tuple[int, dict[str, Sequence[PolicyRule]]] = 0, {}
        """The version of the ClusterRole cache, and the rules of aggregated roles by name at that version."""
        self._askable: tuple[int, dict[ResourceAction, Sequence[tuple[str, PolicyRule]]]] = 0, {}
        """The version of the ClusterRole cache, and the cached results of `_rules_for` at that version."""

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of the four caches. They change when any role or binding changes."""
        return self._roles.version, self._cluster_roles.version, self._bindings.version, self._cluster_bindings.version

    def decisions(self, user: User, action: ResourceAction) -> ActionDecisions:
        """Return the decisions for a user and action."""
        return ActionDecisions(partial(self._allowed_objects, user, action))

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """Yield the cluster-wide grants of a user, then those in the namespace. With "" only the cluster-wide ones."""
        yield from self._grants_of(user, "", self._namespace_bindings(""))
        if namespace:
            yield from self._grants_of(user, namespace, self._namespace_bindings(namespace))

    def rules(self, role: RoleRef, namespace: str) -> Sequence[PolicyRule] | None:
        """Return the rules of a role; None if it does not exist."""
        if role.kind == "Role":
            role_entry = self._roles.get(ROLES.key(namespace, role.name))
            return role_entry.obj.rules if role_entry is not None else None
        cluster_role_entry = self._cluster_roles.get(CLUSTER_ROLES.key("", role.name))
        return self._rules_with_aggregated(cluster_role_entry.obj) if cluster_role_entry is not None else None

    def roles_allowing(self, action: ResourceAction, name: str | None) -> list[str]:
        """Return the sorted names of the ClusterRoles that allow the action on an object. Roles with the verb "*" are omitted.
        A name of "" means all objects, and None means any object."""
        rules = self._rules_for(action)
        return sorted({role for role, rule in rules if _applies_to_name(rule, action, name)})

    def _rules_for(self, action: ResourceAction) -> Sequence[tuple[str, PolicyRule]]:
        """Return the rules of ClusterRoles that allow the action on any object, with the names of their roles. The result is
        cached, because every denial needs it, and a scan of all rules takes 0.4 ms."""
        if self._askable[0] != (version := self._cluster_roles.version) or len(self._askable[1]) >= MAX_ACTIONS:
            self._askable = version, {}
        known = self._askable[1]
        if action not in known:
            known[action] = [
                (role.metadata.name, rule)
                for role in _all_objects(CLUSTER_ROLES, self._cluster_roles)
                if not role.metadata.name.startswith(_AGGREGATED_PREFIX)
                for rule in self._rules_with_aggregated(role)
                if WILDCARD not in rule.verbs and _allows_action(rule, action)
            ]
        return known[action]

    def _rules_with_aggregated(self, role: ClusterRole) -> Sequence[PolicyRule]:
        if not role.HasField("aggregationRule"):
            return role.rules
        if self._gathered[0] != (version := self._cluster_roles.version):
            self._gathered = version, {}
        known = self._gathered[1]
        if role.metadata.name not in known:
            known[role.metadata.name] = self.aggregate_rules(role)
        return known[role.metadata.name]

    def aggregate_rules(self, role: ClusterRole) -> Sequence[PolicyRule]:
        """Return the rules of a role with an aggregationRule, each once, by the names of their roles."""
        gathered = [role]
        others = [
            candidate
            for candidate in _all_objects(CLUSTER_ROLES, self._cluster_roles)
            if candidate.metadata.name != role.metadata.name
        ]
        for gathering in gathered:  # the loop appends to this list
            selectors = [from_message(candidate) for candidate in gathering.aggregationRule.clusterRoleSelectors]
            if selectors:
                chosen = [any(selector.matches(candidate.metadata.labels) for selector in selectors) for candidate in others]
                gathered += compress(others, chosen)
                others = [candidate for candidate, is_chosen in zip(others, chosen, strict=True) if not is_chosen]
        selected = sorted(
            (candidate for candidate in gathered if not candidate.HasField("aggregationRule")),
            key=lambda candidate: candidate.metadata.name,
        )
        rules = {rule.SerializeToString(deterministic=True): rule for candidate in selected for rule in candidate.rules}
        return list(rules.values())

    def _allowed_objects(self, user: User, action: ResourceAction, namespace: str) -> AllowedObjects:
        scope = self._namespace_bindings(namespace)
        if scope.empty:
            return AllowedObjects()
        stamp, known = self._extents.get((namespace, user, action), (0, None))
        if known is None or stamp != scope.stamp:
            if len(self._extents) >= MAX_REMEMBERED or self._names >= MAX_NAMES:
                self._extents.clear()
                self._names = 0
            known = _objects_of_grants(self._grants_of(user, namespace, scope), action)
            self._names += len(known.names)
            self._extents[namespace, user, action] = scope.stamp, known
        return known

    def _grants_of(self, user: User, namespace: str, scope: NamespaceBindings) -> Iterator[Grant]:
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        for bound, subject in scope.bindings_of(user):
            role = bound.role
            reason = f'RBAC: allowed by {kind} "{bound.name}" of {role.kind} "{role.name}" to {subject}'
            yield Grant(self.rules(role, namespace) or (), reason)

    def _namespace_bindings(self, namespace: str) -> NamespaceBindings:
        """Return the current scope. A scope without bindings is not cached, because requests can contain any namespace."""
        if namespace and namespace not in self._scopes and not self._bindings.count(namespace):
            return _UNBOUND
        now = self.versions
        scope = self._scopes.get(namespace) or self._create_namespace_bindings(namespace)
        if scope.seen == now:
            return scope
        roles_changed = scope.seen[1:2] != now[1:2]
        if scope.refresh() or roles_changed:
            scope.stamp = next(self._stamps)
        scope.seen = now
        if scope.empty:
            self._scopes.pop(namespace, None)
        elif namespace not in self._scopes:
            if len(self._scopes) >= MAX_SCOPES:
                self._scopes.clear()
            self._scopes[namespace] = scope
        return scope

    def _create_namespace_bindings(self, namespace: str) -> NamespaceBindings:
        if not namespace:
            return NamespaceBindings(partial(self._cluster_bindings.select, _select_all(CLUSTER_ROLE_BINDINGS)), tuple)
        bindings, roles = _select_all(ROLE_BINDINGS, namespace), _select_all(ROLES, namespace)
        return NamespaceBindings(partial(self._bindings.select, bindings), partial(self._roles.select, roles))


_UNBOUND = NamespaceBindings(tuple, tuple)
"""The scope of a namespace without bindings."""


def _objects_of_grants(grants: Iterable[Grant], action: ResourceAction) -> AllowedObjects:
    extent, nameless = AllowedObjects(), _has_no_resource_name(action)
    for rules, reason in grants:
        for rule in rules:
            if not _allows_action(rule, action):
                continue
            for name in () if nameless else rule.resourceNames:
                extent.names.setdefault(name, reason)
            if not rule.resourceNames:
                extent.everything = extent.everything or reason
    return extent


def _has_no_resource_name(action: ResourceAction) -> bool:
    """Report whether the object of an action has no name yet, which is so for creates. A rule with resourceNames does not allow
    creates, except of subresources.

    Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources
    """
    return action.verb == "create" and "/" not in action.resource


def _applies_to_name(rule: PolicyRule, action: ResourceAction, name: str | None) -> bool:
    """Report whether a rule that allows the action also applies to the name. `name` is as in RbacAuthorizer.roles_allowing."""
    named = rule.resourceNames
    return not named or (not _has_no_resource_name(action) and (name is None or name in named))


def _allows_action(rule: PolicyRule, action: ResourceAction) -> bool:
    """Report whether a rule allows the action, ignoring resourceNames."""
    if action.verb not in rule.verbs and WILDCARD not in rule.verbs:
        return False
    resource = action.resource
    if resource.startswith("/"):
        return any(matches_non_resource_url(resource, url) for url in rule.nonResourceURLs)
    if action.group not in rule.apiGroups and WILDCARD not in rule.apiGroups:
        return False
    _, slash, subresource = resource.partition("/")
    return resource in rule.resources or WILDCARD in rule.resources or (bool(slash) and f"*/{subresource}" in rule.resources)


def matches_non_resource_url(path: str, url: str) -> bool:
    return path.startswith(url[:-1]) if url.endswith(WILDCARD) else path == url


def _all_objects(resource: Resource[Any], cache: ResourceCache[Any]) -> Iterator[Any]:
    return (entry.obj for entry in cache.select(_select_all(resource)))


def _select_all(resource: Resource[Any], namespace: str = "") -> SelectionPredicate:
    return SelectionPredicate.parse(resource, namespace, "", "")


class RuleCover:
    """A set of rules, to check whether it covers another rule."""

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self._verbs: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._resources: dict[str, int] = {}
        self._urls: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._nameless = 0
        for position, rule in enumerate(rules):
            bit = 1 << position
            for numbers, values in (
                (self._verbs, rule.verbs),
                (self._groups, rule.apiGroups),
                (self._resources, rule.resources),
                (self._urls, rule.nonResourceURLs),
                (self._names, rule.resourceNames),
            ):
                for value in values:
                    numbers[value] = numbers.get(value, 0) | bit
            if not rule.resourceNames:
                self._nameless |= bit

    def covers(self, wanted: PolicyRule) -> bool:
        """Report whether these rules allow every action that the given rule allows."""
        verbs = {_rule_bits_of_value(self._verbs, verb) for verb in wanted.verbs}
        groups = {_rule_bits_of_value(self._groups, group) for group in wanted.apiGroups}
        resources = {self._rule_bits_of_resource(name) for name in wanted.resources}
        names = [self._names.get(name, 0) for name in set(wanted.resourceNames)]
        places = {group & resource for group, resource in product(groups, resources)}
        places |= {self._rule_bits_of_url(url) for url in set(wanted.nonResourceURLs)}
        return all(self._rules_allow(verb & place, names) for verb, place in product(verbs, places))

    def _rules_allow(self, rules: int, names: Sequence[int]) -> bool:
        """Report whether these rules allow an action on all names, or at least on each of the given names."""
        return bool(rules & self._nameless) or (bool(names) and all(rules & name for name in names))

    def _rule_bits_of_resource(self, name: str) -> int:
        _, slash, subresource = name.partition("/")
        number = _rule_bits_of_value(self._resources, name)
        return number | self._resources.get(f"*/{subresource}", 0) if slash else number

    def _rule_bits_of_url(self, url: str) -> int:
        number = 0
        for held, rules in self._urls.items():
            if matches_non_resource_url(url, held):
                number |= rules
        return number


def _rule_bits_of_value(index: dict[str, int], value: str) -> int:
    return index.get(value, 0) | index.get(WILDCARD, 0)


def cluster_roles() -> Iterator[ClusterRole]:
    see = [
        *_build_rules(_READ, _VIEWABLE),
        _build_rule(_READ, [NAMESPACES]),
        _build_rule(_READ, [PODS], "log"),
        _build_rule(_READ, _SCALABLE, "scale"),
        _READ_METRICS,
    ]
    edit = [
        *_build_rules(_WRITE, _EDITABLE),
        *_build_rules((*_READ, *_WRITE), [SECRETS]),
        _build_rule(("patch", "update"), [PODS], "resize"),
        _build_rule(("patch", "update"), _SCALABLE, "scale"),
        _build_rule(("create",), [PODS], "eviction"),
        *(_build_rule(("create",), [PODS], candidate) for candidate in ("attach", "exec", "portforward")),
        _build_rule(("impersonate",), [SERVICE_ACCOUNTS]),
        _build_rule(("create",), [SERVICE_ACCOUNTS], "token"),
    ]
    yield _build_role("cluster-admin", ALL_RULES)
    yield from _build_aggregated_role("admin", _build_rules((*_READ, *_WRITE), [ROLES, ROLE_BINDINGS]))
    yield from _build_aggregated_role("edit", edit, part_of="admin")
    yield from _build_aggregated_role("view", see, part_of="edit")
    yield _build_role(
        "cluster-view",
        [
            *_build_rules(_READ, _ALL_BUT_SECRETS),
            _build_rule(_READ, [PODS], "log"),
            _build_rule(_READ, _SCALABLE, "scale"),
            _READ_METRICS,
            _elections_rule(*_READ),
            _KEYS,
        ],
    )
    yield _build_role(
        "system:basic-user",
        [
            PolicyRule(verbs=["create"], apiGroups=[AUTHENTICATION_GROUP], resources=["selfsubjectreviews"]),
            _reviews_rule("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        ],
    )
    yield _build_role("system:public-info-viewer", [PolicyRule(verbs=["get"], nonResourceURLs=_INFORMATION)])
    yield _build_role("system:discovery", [PolicyRule(verbs=["get"], nonResourceURLs=[*_INFORMATION, *_DISCOVERY])])
    yield _build_role(_ISSUER_DISCOVERY, [PolicyRule(verbs=["get"], nonResourceURLs=_ISSUER)])
    yield _build_role("system:monitoring", [PolicyRule(verbs=["get"], nonResourceURLs=_MONITORING)])
    yield _build_role("system:kube-scheduler", _scheduler_rules())
    yield _build_role("system:kube-controller-manager", _controllers_rules())
    yield _build_role("system:gateway", _gateway_rules())
    yield _build_role(
        "system:node-proxier",
        [*_build_rules(("list", "watch"), [SERVICES, ENDPOINT_SLICES, NAMESPACES]), _build_rule(_READ, [NODES])],
    )


def cluster_role_bindings() -> Iterator[ClusterRoleBinding]:
    yield _build_cluster_binding("cluster-admin", "Group", MASTERS)
    for role in ("system:basic-user", "system:discovery"):
        yield _build_cluster_binding(role, "Group", AUTHENTICATED)
    yield _build_cluster_binding("system:public-info-viewer", "Group", AUTHENTICATED, UNAUTHENTICATED)
    yield _build_cluster_binding(_ISSUER_DISCOVERY, "Group", ALL_SERVICE_ACCOUNTS)
    yield _build_cluster_binding("system:monitoring", "Group", "system:monitoring")
    for component in ("system:kube-scheduler", "system:kube-controller-manager", "system:gateway"):
        yield _build_cluster_binding(component, "User", component)
    yield _build_cluster_binding("system:node-proxier", "User", "system:kube-proxy")


def _gateway_rules() -> list[PolicyRule]:
    return [
        PolicyRule(verbs=["impersonate"], apiGroups=[""], resources=["users", "groups", SERVICE_ACCOUNTS.plural]),
        PolicyRule(verbs=["create"], apiGroups=[AUTHENTICATION_GROUP], resources=["tokenreviews"]),
        *_build_rules(("create", "delete", "get", "list", "update"), [LEASES, ENDPOINT_SLICES]),  # the service kubernetes
        _build_rule(_READ, [CUSTOM_RESOURCE_DEFINITIONS]),
        _KEYS,
    ]


def _scheduler_rules() -> list[PolicyRule]:
    return [
        *_build_rules(_READ, _READ_BY_SCHEDULER),
        _build_rule((*_READ, "delete"), [PODS]),
        _build_rule(("create",), [PODS], "binding"),
        _build_rule(("update", "patch"), [PODS], "status"),
        # Unlike in Kubernetes, including the status, because the volume controller binds no volumes.
        *(_build_rule(("update", "patch"), [PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS], part) for part in ("", "status")),
        *_build_rules(("create", "update", "patch"), [EVENTS, EVENTS_V1]),
        _elections_rule("get", "campaign", of=SCHEDULER_ELECTION),
        # All names, because the scheduler's configuration contains the names of its profiles.
        PolicyRule(verbs=["campaign"], apiGroups=[ELECTIONS_GROUP], resources=["schedulers"]),
    ]


def _controllers_rules() -> list[PolicyRule]:
    """Return the rules of the controllers, which share one identity. They can delete all namespaced objects and all objects
    with deleted owners. They cannot grant roles or renew the leases of nodes."""
    return [
        *_build_rules(_READ, _ALL_BUT_SECRETS),
        *_build_rules(("update", "patch", "delete"), COLLECTED),
        *_build_rules(("delete", "deletecollection"), [resource for resource in ALL if resource.namespaced]),
        *_build_rules(("create",), _CREATED_BY_CONTROLLERS),
        *_build_rules(("update", "patch"), _STATUS_OF_CONTROLLERS, "status"),
        *_build_rules(("create", "update", "patch"), [EVENTS, EVENTS_V1]),
        PolicyRule(verbs=["get", "update"], apiGroups=[WILDCARD], resources=["*/scale"]),  # of the targets of autoscalers
        _READ_METRICS,
        _elections_rule("get", "campaign", of=CONTROLLERS_ELECTION),
        _elections_rule("list"),
    ]


def _build_rules(verbs: Iterable[str], resources: Iterable[Resource[Any]], subresource: str = "") -> list[PolicyRule]:
    """Return one rule for each API group of the resources."""
    groups: dict[str, list[Resource[Any]]] = {}
    for resource in resources:
        groups.setdefault(resource.group, []).append(resource)
    return [_build_rule(tuple(verbs), candidate, subresource) for candidate in groups.values()]


def _build_rule(verbs: Sequence[str], resources: Sequence[Resource[Any]], subresource: str = "") -> PolicyRule:
    """Return a rule for the resources. If they are in several API groups, the rule allows each name in each group."""
    groups = sorted({resource.group for resource in resources})
    names = [f"{resource.plural}/{subresource}" if subresource else resource.plural for resource in resources]
    return PolicyRule(verbs=verbs, apiGroups=groups, resources=names)


def _elections_rule(*verbs: str, of: str = "") -> PolicyRule:
    """Return a rule for elections. `of` limits it to one election, as Kubernetes' roles are limited to the component's
    Lease."""
    return PolicyRule(verbs=verbs, apiGroups=[ELECTIONS_GROUP], resources=["elections"], resourceNames=[of] if of else ())


def _reviews_rule(*resources: str) -> PolicyRule:
    return PolicyRule(verbs=["create"], apiGroups=[REVIEWS_GROUP], resources=resources)


def _build_role(name: str, rules: Iterable[PolicyRule]) -> ClusterRole:
    role = ClusterRole(rules=rules)
    _mark_builtin(role, name)
    return role


def _build_aggregated_role(name: str, rules: Iterable[PolicyRule], part_of: str = "") -> Iterator[ClusterRole]:
    """Return a role that aggregates all roles with its label, and is itself labelled for aggregation into `part_of`; and the
    role with the default rules."""
    role, part = _build_role(name, ()), _build_role(f"{_AGGREGATED_PREFIX}{name}", rules)
    part.metadata.labels[f"{_AGGREGATE_TO}{name}"] = "true"
    role.aggregationRule.clusterRoleSelectors.add().matchLabels[f"{_AGGREGATE_TO}{role.metadata.name}"] = "true"
    if part_of:
        role.metadata.labels[f"{_AGGREGATE_TO}{part_of}"] = "true"
    yield role
    yield part


def _build_cluster_binding(role: str, kind: str, *subjects: str) -> ClusterRoleBinding:
    binding = ClusterRoleBinding()
    _mark_builtin(binding, role)
    binding.roleRef.apiGroup, binding.roleRef.kind, binding.roleRef.name = _GROUP, "ClusterRole", role
    for subject in subjects:
        binding.subjects.add(apiGroup=_GROUP, kind=kind, name=subject)
    return binding


def _mark_builtin(obj: ClusterRole | ClusterRoleBinding, name: str) -> None:
    obj.metadata.name = name
    obj.metadata.labels[_BOOTSTRAPPING] = "rbac-defaults"
    obj.metadata.annotations[AUTOUPDATE] = "true"
