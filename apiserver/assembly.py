"""An API server without a transport: storage <- cacher and committer <- registry <- services.

The only state of a server is its watch cache, which it can rebuild at any time. Any number of replicas can use one etcd.

`Assembly.methods` maps a path such as "/pinnace.v1.Pods/Get" to its method. gRPC (apiserver.server) and the in-process
simulation call the same methods, with the same checks. All time and randomness comes from `clock`, `rng` and the event loop.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from pinnace.api import (
    authorization_pb2,
    calls_pb2,
    customobjects_pb2,
    elections_pb2,
    keys_pb2,
    metrics_pb2,
    tables_pb2,
    tokens_pb2,
    version_pb2,
)
from pinnace.api.conversion import SERVED_VERSIONS, conversion_of
from pinnace.api.resources import (
    ALL,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    IP_ADDRESSES,
    LEASES,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
    by_kind,
)
from pinnace.apiextensions.kinds import CustomVersion
from pinnace.apiserver.account_secrets import TokenSecretFiller
from pinnace.apiserver.admission import AdmissionChain
from pinnace.apiserver.admission.accounts import ServiceAccountAdmission
from pinnace.apiserver.admission.plugins import OPTIONAL, SERVICE_ACCOUNT, build_chain
from pinnace.apiserver.auth.audit import AuditSink, CallAudit, NoAudit
from pinnace.apiserver.auth.authentication import NoTokenAuthenticator, TokenAuthenticator
from pinnace.apiserver.auth.authorizer import Impersonator, NodeAuthorizer, UnionAuthorizer
from pinnace.apiserver.auth.rbac import RbacAuthorizer
from pinnace.apiserver.auth.tokens import AccountTokenAuthenticator, TokenSettings
from pinnace.apiserver.cacher.cacher import Cacher, ResourceCache
from pinnace.apiserver.customresources.controller import DefinitionController
from pinnace.apiserver.customresources.conversion import ConversionWebhooks
from pinnace.apiserver.customresources.registry import CustomResources, MethodTable
from pinnace.apiserver.customresources.service import ConvertedObjectService, CustomObjectService
from pinnace.apiserver.customresources.store import CustomStore, VersionConverter
from pinnace.apiserver.customresources.strategy import CustomObjectStrategy
from pinnace.apiserver.election.service import DEFAULT_LEASE, ElectionsService, election_timing
from pinnace.apiserver.election.term_history import BackupTermsEnder
from pinnace.apiserver.flow.control import SEATS, PriorityAndFairness
from pinnace.apiserver.kubernetes_service import DEFAULT_PORT, KubernetesServiceKeeper
from pinnace.apiserver.quota.ledger import Quotas
from pinnace.apiserver.registry.allocation import AddressGuard, ServiceAllocator, ServiceRanges
from pinnace.apiserver.registry.events import EventLimits, EventRegistry, EventRetention, LeasedEventCommitter
from pinnace.apiserver.registry.fencing import FenceVerifier
from pinnace.apiserver.registry.mutation import Allocator, Mutator
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.apiserver.registry.strategies.definitions import DefinitionStrategy
from pinnace.apiserver.registry.strategies.pods import DefaultTolerationSeconds, PodStrategy
from pinnace.apiserver.registry.strategy import Strategy
from pinnace.apiserver.services import metrics
from pinnace.apiserver.services.calls import CallRunner, CallsService, RequestIds
from pinnace.apiserver.services.clusterroles import ClusterRoleService, RoleAggregator
from pinnace.apiserver.services.converting import ConvertingService
from pinnace.apiserver.services.discovery import (
    GRPCS_OWN,
    HEALTH,
    REFLECTION,
    AuthorizationService,
    HealthService,
    ReflectionService,
    VersionService,
)
from pinnace.apiserver.services.keys import KeysService
from pinnace.apiserver.services.kubelets import Kubelets, NoKubelets
from pinnace.apiserver.services.leases import LeaseService
from pinnace.apiserver.services.methods import MIN_TIMEOUT, READ_TIMEOUT, Gate, Method, StreamReauthorizer, build_methods
from pinnace.apiserver.services.nodes import HeartbeatsService, NodeService
from pinnace.apiserver.services.pods import ContainerStreams, PodService
from pinnace.apiserver.services.resource import EventService, NamespaceService, ResourceService, TablesService
from pinnace.apiserver.services.resource_metrics import NodeMetricsService, PodMetricsService, StatsCollector
from pinnace.apiserver.services.scale import ScaledService
from pinnace.apiserver.services.tokens import TokensService
from pinnace.apiserver.startup import Bootstrap, ClusterIdentity, IdentityClaim, Migration, ReadinessGate
from pinnace.apiserver.storage.committer import Committer, MarkerSweeper
from pinnace.apiserver.storage.compactor import INTERVAL, Compactor
from pinnace.apiserver.storage.interface import Storage
from pinnace.apiserver.webhooks.client import WebhookClient
from pinnace.apiserver.webhooks.configurations import WebhookConfigurations
from pinnace.apiserver.webhooks.dispatch import WebhookAdmission
from pinnace.apiserver.webhooks.evaluation import PolicyAdmission
from pinnace.apiserver.webhooks.policies import PolicyIndex
from pinnace.apiserver.webhooks.reviewers import Reviewers
from pinnace.apiserver.webhooks.services import EndpointResolver
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.cpu import no_preemptions
from pinnace.runtime.grpc_server import RefusalPacer
from pinnace.runtime.supervise import run_unending
from pinnace.runtime.tracing import NO_TRACER, Tracer


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The configuration of an API server. By default there is no audit log, tracer or kubelet client."""

    compaction_interval: float = INTERVAL
    """Seconds between compactions of the storage. If 0, this server does not compact."""
    election_lease: int = DEFAULT_LEASE
    """The TTL of leases of elections in seconds."""
    events: EventLimits = field(default_factory=EventLimits)
    """The maximum number and size of stored events."""
    seats: int = SEATS
    """The maximum number of concurrent single-object calls (see pinnace.apiserver.flow.control)."""
    tolerations: DefaultTolerationSeconds = field(default_factory=DefaultTolerationSeconds)
    """The default tolerations of pods."""
    services: ServiceRanges = field(default_factory=ServiceRanges)
    """The ranges of cluster IPs and node ports."""
    tokens: TokenAuthenticator = field(default_factory=NoTokenAuthenticator)
    """The bearer tokens that the server reviews, besides those of service accounts."""
    account_tokens: TokenSettings | None = None
    """The tokens of service accounts. None: the server signs and accepts none, and pods have no credentials."""
    disabled_plugins: frozenset[str] = frozenset()
    """The names of admission plugins that are not called."""
    kubernetes_port: int = DEFAULT_PORT
    """The port of the service kubernetes, which exists if pods have credentials."""
    audit: AuditSink = field(default_factory=NoAudit)
    tracer: Tracer = NO_TRACER
    kubelets: Kubelets = field(default_factory=NoKubelets)
    min_request_timeout: float = MIN_TIMEOUT
    """The minimum duration of a watch in seconds (see pinnace.apiserver.services.methods)."""
    preempted: Callable[[], int] = no_preemptions
    """Returns the number of preemptions of this process (see pinnace.runtime.cpu)."""
    cluster: IdentityClaim = field(default_factory=IdentityClaim)
    """The cluster to which the server belongs."""

    @property
    def optional_plugins(self) -> frozenset[str]:
        """The enabled admission plugins that can be disabled. Without tokens, pods get no credentials."""
        return frozenset(OPTIONAL if self.account_tokens is not None else ()) - self.disabled_plugins


DEFAULTS = ServerSettings()


class Assembly:
    """An API server without a transport. For a graceful shutdown, call `drain` before cancelling `run`. `opening` is the
    readiness gate of all methods."""

    def __init__(
        self,
        storage: Storage,
        settings: ServerSettings = DEFAULTS,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._definition_strategy = DefinitionStrategy(CUSTOM_RESOURCE_DEFINITIONS)
        self._storage = storage
        self._clock = clock
        self._rng = rng or random.Random()
        self._identity = ClusterIdentity(storage, settings.cluster, clock, self._rng)
        self._committer = Committer(storage, clock=clock, rng=self._rng, preempted=settings.preempted)
        self._elections_committer = Committer(storage, clock=clock, rng=self._rng)
        """Elections have their own write pipelines, so object writes do not delay them."""
        self._sweeper = MarkerSweeper(storage, clock)
        self._compactor = Compactor(storage, clock, settings.compaction_interval)
        self.cacher = Cacher(storage, ALL, clock=clock, rng=self._rng)
        self._quotas = Quotas(
            storage, self.cacher, self._committer, self._wait_until_cache_fresh, clock, self._rng, preempted=settings.preempted
        )
        of = self.cacher.cache_of
        accounts = ServiceAccountAdmission(of(SERVICE_ACCOUNTS)) if SERVICE_ACCOUNT in settings.optional_plugins else None
        self._strategies: Mapping[str, Strategy[Any]] = {
            **STRATEGIES,
            PODS.plural: PodStrategy(settings.tolerations, accounts),
            CUSTOM_RESOURCE_DEFINITIONS.plural: self._definition_strategy,
        }
        self._nodes = NodeAuthorizer(of(NODES), of(PODS), of(PERSISTENT_VOLUMES))
        self._rbac = RbacAuthorizer(of(ROLES), of(CLUSTER_ROLES), of(ROLE_BINDINGS), of(CLUSTER_ROLE_BINDINGS))
        self._audit = CallAudit(settings.audit)
        self.policy = UnionAuthorizer(self._rbac, self._nodes, self._wait_until_cache_fresh, self._audit)
        self.account_tokens = self._token_authenticator()
        """None: the server accepts no tokens of service accounts."""
        self._fences = FenceVerifier(storage, self.cacher, self.policy)
        self._flow = PriorityAndFairness(settings.seats, clock=clock, meter=metrics.FlowMeter())
        self._retention = EventRetention(storage, self.cacher, clock, settings.events)
        metrics.register_readers(self._flow.levels, self.cacher, self._retention)
        self._elections = ElectionsService(
            storage,
            self._elections_committer,
            self._committer,
            self.cacher,
            self.policy,
            clock=clock,
            rng=self._rng,
            timing=election_timing(settings.election_lease),
        )
        self._heartbeats = HeartbeatsService(storage, self._committer, self.cacher, self.policy, clock=clock, rng=self._rng)
        self._admission = admission = build_chain(self.cacher, self._nodes, self._rbac, self._quotas, settings.tracer, clock)
        self._webhook_client = WebhookClient(EndpointResolver(of(SERVICES), of(ENDPOINT_SLICES), self._rng).resolve)
        self._conversions = ConversionWebhooks(self._webhook_client, self._rng)
        self._reviewers = self._new_reviewers()
        self._stores = {resource: self._build_store(resource, admission) for resource in ALL}
        self._aggregator = RoleAggregator(self._stores[CLUSTER_ROLES], self.cacher, self._rbac)
        networks = [str(network) for network in settings.services.networks]
        bootstrap = Bootstrap(
            self._stores,
            self.cacher,
            clock,
            networks,
            self._aggregator,
            has_accounts=SERVICE_ACCOUNT in settings.optional_plugins,
        )
        self._migration = Migration(storage, self._stores, self.cacher, clock)
        restores = BackupTermsEnder(storage, self._elections_committer, self.cacher, clock, self._rng)
        self._kubernetes = KubernetesServiceKeeper(
            self._stores[SERVICES], self.cacher, settings.services.networks, settings.kubernetes_port, clock
        )
        self._token_secrets = None
        if settings.account_tokens is not None:
            self._token_secrets = TokenSecretFiller(
                self._stores[SECRETS], self.cacher, settings.account_tokens, self._wait_until_cache_fresh, clock
            )
        self.opening = ReadinessGate(self.cacher, self._identity, bootstrap, restores, self._elections)
        ids = RequestIds(f"{self._rng.getrandbits(48):012x}")
        impersonator = Impersonator(self.policy, lambda: self._rbac.versions)
        self.runner = CallRunner(ids, RefusalPacer(clock), impersonator, settings.tracer)
        self._calls = CallsService(self.runner)
        self._authorizations = StreamReauthorizer(
            self.policy, self._role_versions, settings.min_request_timeout, clock, self._rng
        )
        self._custom = CustomResources(self.cacher, self._custom_methods, self._wait_until_cache_fresh)
        self._definitions = DefinitionController(
            self._custom,
            self._stores[CUSTOM_RESOURCE_DEFINITIONS],
            self._custom_store_of,
            self.cacher,
            self.opening.bootstrapped,
            self._wait_until_cache_fresh,
            clock,
        )
        self.methods = MethodTable(self._build_methods(), self._custom)
        self._calls.set_methods(self.methods)

    async def run(self) -> None:
        """Run until cancelled. If a task fails, all tasks are cancelled and the error is raised. Raises ClusterMismatch before
        the first write."""
        await self._identity.verify_identity()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_unending("identity", self._identity.run), name="identity")
                tasks.create_task(run_unending("committer", self._committer.run), name="committer")
                tasks.create_task(
                    run_unending("committer of elections", self._elections_committer.run), name="committer of elections"
                )
                for committer in (self._committer, self._elections_committer):
                    tasks.create_task(run_unending("pipelines", committer.keep_pipelines_open), name="pipelines")
                tasks.create_task(run_unending("flow control", self._flow.run), name="flow control")
                tasks.create_task(run_unending("stream reauthorizer", self._authorizations.run), name="stream reauthorizer")
                tasks.create_task(run_unending("sweeper", self._sweeper.run), name="sweeper")
                tasks.create_task(run_unending("compactor", self._compactor.run), name="compactor")
                tasks.create_task(run_unending("retention of events", self._retention.run), name="retention of events")
                tasks.create_task(run_unending("cacher", self.cacher.run), name="cacher")
                tasks.create_task(run_unending("quotas", self._quotas.run), name="quotas")
                tasks.create_task(run_unending("elections", self._elections.run), name="elections")
                tasks.create_task(run_unending("opening", self.opening.run), name="opening")
                tasks.create_task(run_unending("definitions", self._definitions.run), name="definitions")
                tasks.create_task(self._migrate_storage_format(), name="migration")
                if self._token_secrets is not None:
                    for name, part in (("service kubernetes", self._kubernetes), ("token secrets", self._token_secrets)):
                        tasks.create_task(run_unending(name, partial(self._run_after_bootstrap, part.run)), name=name)
        finally:
            await self._webhook_client.close()

    async def _run_after_bootstrap(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work that writes, when the server has its state and its bootstrap objects."""
        await self.opening.bootstrapped.wait()
        await work()

    async def _migrate_storage_format(self) -> None:
        await self.opening.bootstrapped.wait()
        await self._migration.run()

    async def drain(self) -> None:
        """Refuse new calls, and end watches, campaigns and heartbeat streams. Their clients resume at another replica."""
        self.opening.drain()
        self._calls.drain()
        self._elections.drain()
        self._heartbeats.drain()
        await self.cacher.drain()

    def _build_methods(self) -> Mapping[str, Method]:
        of_resources, opening = self._build_services(), self.opening
        services: list[tuple[ServiceDescriptor, object, Gate]] = [
            (_service_descriptor(resource), service, opening.resource_gate(resource))
            for resource, service in of_resources.items()
        ]
        for resource in SERVED_VERSIONS:
            stored = conversion_of(resource).stored
            converting = ConvertingService(resource, self._stores[stored], self.cacher, NoAudit(), self.policy, self._clock)
            services.append((_service_descriptor(resource), converting, opening.resource_gate(stored)))
        tables = TablesService(of_resources, self._clock)
        services.append((tables_pb2.DESCRIPTOR.services_by_name["Tables"], tables, opening.refusal))
        usage = metrics_pb2.DESCRIPTOR.services_by_name
        surveyor = StatsCollector(self._settings.kubelets)
        of_nodes = NodeMetricsService(of_resources[NODES], surveyor)
        of_pods = PodMetricsService(of_resources[PODS], self.cacher.cache_of(NODES), surveyor)
        services.append((usage["NodeMetrics"], of_nodes, opening.resource_gate(NODES)))
        services.append((usage["PodMetrics"], of_pods, opening.resource_gate(PODS)))
        services.append((elections_pb2.DESCRIPTOR.services_by_name["Elections"], self._elections, opening.refusal))
        services.append((keys_pb2.DESCRIPTOR.services_by_name["Keys"], KeysService(self._storage), opening.refusal))
        services.append((calls_pb2.DESCRIPTOR.services_by_name["Calls"], self._calls, opening.refusal))
        authorization = authorization_pb2.DESCRIPTOR.services_by_name["Authorization"]
        reviews = AuthorizationService(self.policy, self._settings.tokens, self.account_tokens, self._wait_until_cache_fresh)
        services.append((authorization, reviews, opening.refusal))
        tokens = TokensService(self._settings.account_tokens, self.cacher, self._nodes.owns_node, self._clock, self._rng)
        services.append((tokens_pb2.DESCRIPTOR.services_by_name["Tokens"], tokens, opening.refusal))
        services.append((version_pb2.DESCRIPTOR.services_by_name["Version"], VersionService(), opening.refusal))
        methods: dict[str, Method] = {}

        def serve(descriptors: Iterable[MethodDescriptor], service: object, gate: Gate) -> None:
            of_calls = build_methods(
                descriptors, service, gate, self._flow, self.policy, self._authorizations, self._fences, self._audit
            )
            methods.update(of_calls)

        for descriptor, service, gate in services:
            serve(descriptor.methods, service, gate)
        names = sorted(
            service_descriptor.full_name for service_descriptor in (*(service[0] for service in services), *GRPCS_OWN)
        )
        serve(HEALTH, HealthService(opening.readiness, names), lambda: None)  # health checks work before the server is ready
        serve(REFLECTION, ReflectionService(names), opening.refusal)
        return methods

    def _build_services(self) -> Mapping[Resource[Any], ResourceService[Any]]:
        stores, audit, policy = self._stores, self._audit, self.policy
        streaming = ContainerStreams(self.cacher.cache_of(PODS), self.cacher.cache_of(NODES), self._settings.kubelets)
        special: Mapping[Resource[Any], ResourceService[Any]] = {
            PODS: PodService(
                stores[PODS],
                stores[POD_DISRUPTION_BUDGETS],
                self.cacher,
                audit,
                policy,
                self._clock,
                streaming,
                self._fences,
                requires_accounts=SERVICE_ACCOUNT in self._settings.optional_plugins,
            ),
            NODES: NodeService(stores[NODES], self.cacher, audit, policy, self._heartbeats),
            LEASES: LeaseService(stores[LEASES], self.cacher, audit, policy, self._storage, self._clock),
            CLUSTER_ROLES: ClusterRoleService(stores[CLUSTER_ROLES], self.cacher, audit, policy, self._aggregator),
            DEPLOYMENTS: ScaledService(stores[DEPLOYMENTS], self.cacher, audit, policy),
            REPLICA_SETS: ScaledService(stores[REPLICA_SETS], self.cacher, audit, policy),
            STATEFUL_SETS: ScaledService(stores[STATEFUL_SETS], self.cacher, audit, policy),
            NAMESPACES: NamespaceService(stores[NAMESPACES], self.cacher, audit, policy),
            EVENTS: EventService(stores[EVENTS], self.cacher, NoAudit(), policy, EventRegistry(stores[EVENTS])),
        }
        return {
            resource: special.get(resource) or ResourceService(stores[resource], self.cacher, audit, policy) for resource in ALL
        }

    def _token_authenticator(self) -> AccountTokenAuthenticator | None:
        settings, of = self._settings.account_tokens, self.cacher.cache_of
        if settings is None:
            return None
        return AccountTokenAuthenticator(settings, of(SERVICE_ACCOUNTS), of(PODS), of(SECRETS), of(NODES), self._clock)

    def _build_store(self, resource: Resource[Any], admission: AdmissionChain) -> Store[Any]:
        committer = self._quotas.committer_of(resource)
        if resource is EVENTS:
            committer = LeasedEventCommitter(committer, self._storage, self._clock)
        strategy, clock, rng = self._strategies[resource.plural], self._clock, self._rng
        allocator: Allocator[Any] | None = None
        if resource is SERVICES:
            allocator = ServiceAllocator(
                self.cacher, self._storage, self._wait_until_cache_fresh, self._settings.services, clock, rng
            )
        elif resource is IP_ADDRESSES:
            allocator = AddressGuard(self._storage)
        mutator = Mutator(resource, self.cacher.cache_of(resource), self._storage, committer, clock, allocator)
        return Store(
            resource,
            strategy,
            admission,
            mutator,
            self._wait_until_cache_fresh,
            clock,
            rng,
            self._reviewers,
            self._settings.tracer,
        )

    def _custom_methods(self, version: CustomVersion) -> Mapping[str, Method]:
        """Return the methods of a version of a custom kind."""
        resource = version.resource
        strategy, form = CustomObjectStrategy(version), VersionConverter(version, self._conversions)
        store = self._custom_store(version, strategy, form)
        service = CustomObjectService(version, store, self.cacher, self._audit, self.policy)
        if form.uses_webhook:
            service = ConvertedObjectService(version, store, form, self.cacher, self._audit, self.policy)
        return build_methods(
            customobjects_pb2.DESCRIPTOR.services_by_name["CustomObjects"].methods,
            service,
            self.opening.resource_gate(resource),
            self._flow,
            self.policy,
            self._authorizations,
            self._fences,
            self._audit,
            resource,
        )

    def _custom_store(self, version: CustomVersion, strategy: CustomObjectStrategy, form: VersionConverter) -> CustomStore:
        resource, clock, rng = version.resource, self._clock, self._rng
        committer, cache = self._quotas.committer_of(resource), self.cacher.cache_of(resource)
        mutator = Mutator(resource, cache, self._storage, committer, clock, form=form)
        store = CustomStore(
            resource,
            strategy,
            self._admission,
            mutator,
            self._wait_until_cache_fresh,
            clock,
            rng,
            self._reviewers,
            self._settings.tracer,
        )
        store.follow_definition(self.cacher.cache_of(CUSTOM_RESOURCE_DEFINITIONS), version.kind.qualified)
        return store

    def _custom_store_of(self, definition: str) -> CustomStore | None:
        """Return the store of the objects of a definition; None if it is not established."""
        kind = self._custom.kinds.get(definition)
        if kind is None:
            return None
        return self._custom_store(kind.storage, CustomObjectStrategy(kind.storage), VersionConverter(kind.storage))

    def _new_reviewers(self) -> Reviewers:
        of, decide = self.cacher.cache_of, self.policy.decide
        configurations = WebhookConfigurations((of(MUTATING_WEBHOOK_CONFIGURATIONS), of(VALIDATING_WEBHOOK_CONFIGURATIONS)))
        webhooks = WebhookAdmission(
            configurations,
            of(NAMESPACES),
            self._webhook_client,
            decide,
            metrics.WebhookMeter(),
            self._clock,
            self._rng,
        )
        validating, mutating = (
            PolicyIndex(policies.kind, of(policies), of(bindings))
            for policies, bindings in (
                (VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS),
                (MUTATING_ADMISSION_POLICIES, MUTATING_ADMISSION_POLICY_BINDINGS),
            )
        )
        meter = metrics.PolicyMeter()
        policies = PolicyAdmission(validating, mutating, of(NAMESPACES), self._find_kind, decide, meter, self._clock, self._rng)
        return Reviewers(policies, webhooks)

    def _find_kind(self, api_version: str, kind: str) -> tuple[Resource[Any], ResourceCache[Any]] | None:
        """Return the resource with an API version and kind, and its cache."""
        resource: Resource[Any] | None = by_kind(kind, api_version)
        if resource is None:
            group = api_version.rpartition("/")[0]
            versions = (
                version
                for custom in self._custom.kinds.values()
                if custom.group == group and custom.name == kind
                for version in custom.served
            )
            resource = next((version.resource for version in versions if version.api_version == api_version), None)
        return (resource, self.cacher.cache_of(resource)) if resource is not None else None

    def _role_versions(self) -> Hashable | None:
        """Return the versions of all roles and bindings; None while bootstrap roles may be missing."""
        return self._rbac.versions if self.opening.readiness() is None else None

    async def _wait_until_cache_fresh(self) -> None:
        await self.cacher.wait_until_fresh(READ_TIMEOUT)


def _service_descriptor(resource: Resource[Any]) -> ServiceDescriptor:
    """Return the descriptor of the resource's gRPC service."""
    service: ServiceDescriptor = resource.messages.DESCRIPTOR.services_by_name[resource.service.rpartition(".")[2]]
    return service
