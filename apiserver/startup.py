"""Startup of an API server: cluster identity, bootstrap objects, readiness, and migration of stored objects.

    closed --loaded--> check the identity --> end terms from before a restore --> create bootstrap objects --> open
       ^                                                                                                         |
       '------------------------------------- state reloaded ----------------------------- stopping <--drain-----'

**Readiness.** A reloaded state can come from a restored backup, with missing roles and with fencing tokens that are no longer
current. So the server accepts no calls after a load until all steps are done.

**Cluster identity.** The keys in etcd belong to one cluster. An API server of another cluster exits with ClusterMismatch.
`/registry/cluster` contains the identity: a random ID, and the SHA-256 fingerprints of the client CAs. A server compares it
with its own configuration at start, after each reload of the state, and when its CA file changes:

    no key                                   --> write the identity, even if etcd contains other data
    --cluster-id set: the same ID            --> match; new CAs are added
    --cluster-id set: another ID             --> ClusterMismatch
    at least one CA in common, or none on both sides --> match; new CAs are added
    otherwise                                --> ClusterMismatch

CAs are added, never removed. To rotate a CA, give the servers a bundle of the old and the new CA, in any order. After the first
match a server identifies the cluster by its ID, so its CA file can then be replaced. Clusters without TLS are distinguished
only by --cluster-id.

**Bootstrap objects.** Every cluster has the default namespaces, roles, role bindings and system priority classes. A server
creates missing objects, and adds missing rules, subjects, labels and annotations to existing ones. It never removes additions,
except rules of aggregated ClusterRoles (apiserver.services.clusterroles).
Servers of several versions can run at the same time: after a conflict, a server reads the object and tries again. A default
binding that refers to another role is deleted and created again, because the role of a binding is immutable.

Source: https://github.com/kubernetes/component-helpers/tree/master/auth/rbac/reconciliation

**Migration.** A server rewrites objects that an earlier version stored in an old format. There is one such format: quantities
that are not canonical (`pinnace.api.quantities`). The key STORAGE_FORMAT_KEY contains the format of the store. If it is the
current one, the migration does nothing. Each rewrite is conditional on the version that was read, so no concurrent write is
lost. It does not change the generation. Several servers can migrate at the same time, and a server completes the migration of
a server that stopped. During a rolling upgrade an older server can still store the old format. Such objects are served
unchanged, and quantities are always compared by value.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import Namespace, ServiceAccount
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.names import new_uid
from pinnace.api.networking_v1_pb2 import ServiceCIDR
from pinnace.api.quantities import canonicalize, has_quantities
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule
from pinnace.api.resources import (
    CLUSTER_KEY,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
    SERVICE_CIDRS,
    STORAGE_FORMAT_KEY,
    Resource,
)
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import DeleteRequest
from pinnace.api.wellknown import DEFAULT_ACCOUNT
from pinnace.apiserver import errors
from pinnace.apiserver.admission.defaults import PERMANENT_NAMESPACES
from pinnace.apiserver.auth import rbac
from pinnace.apiserver.auth.authentication import SERVER
from pinnace.apiserver.auth.rbac import RuleCover
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheBehind, CacheEntry, CacheError, SelectionPredicate
from pinnace.apiserver.election.service import ElectionsService
from pinnace.apiserver.election.term_history import BackupTermsEnder
from pinnace.apiserver.errors import Rejected, cache_not_loaded, shutting_down
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.apiserver.registry.deletion import copy_without_version
from pinnace.apiserver.registry.mutation import Mutation, Next, ObjectVersion, PutObject
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.registry.strategies import policy
from pinnace.apiserver.services.clusterroles import RoleAggregator
from pinnace.apiserver.services.methods import Gate
from pinnace.apiserver.storage.committer import WriteConflict
from pinnace.apiserver.storage.interface import Committed, KeyValue, OutOfSpace, Storage, StorageError, Write
from pinnace.runtime.clock import Clock
from pinnace.runtime.logs import BootstrapFailed
from pinnace.runtime.process import FatalError
from pinnace.runtime.tasks import apply_in_slices

log = logging.getLogger(__name__)
RETRY = 0.5
"""Seconds between two attempts while etcd is unavailable."""
IDENTITY_CHECK_INTERVAL = 60.0
"""Seconds between two reads of the CA file."""
FINGERPRINT_LENGTH = 16
"""The number of hexadecimal digits of a fingerprint in messages."""
BOOTSTRAP_RETRY_DELAY = 0.5
"""Seconds between two attempts."""
READ_TIMEOUT = 5.0
_BOOTSTRAP_REQUEST = WriteRequest(SERVER)
_OVERTAKEN = (Code.ALREADY_EXISTS, Code.ABORTED)
DEFAULT_CIDR = "kubernetes"
"""The ServiceCIDR of --service-cluster-ip-range, as in Kubernetes."""
FORMAT = b"canonical-quantities"
BATCH = 100
"""The maximum number of objects per call of the store."""
RETRY_DELAY = 5.0
"""Seconds between two attempts if some objects could not be written."""


class ReadinessGate:
    """Opens the server when its state is complete. `run` must run concurrently with the cacher. `bootstrapped` is set while all
    startup steps are done."""

    def __init__(
        self,
        cacher: Cacher,
        identity: ClusterIdentity,
        bootstrap: Bootstrap,
        restores: BackupTermsEnder,
        elections: ElectionsService,
    ) -> None:
        self._cacher = cacher
        self._identity = identity
        self._bootstrap = bootstrap
        self._restores = restores
        self._elections = elections
        self.bootstrapped = asyncio.Event()
        self._loaded = asyncio.Event()
        self._restored = False
        self._stopping = False
        self.turned_away = 0
        """The number of refused calls since `drain`."""
        cacher.on_load(self._close)

    async def run(self) -> None:
        """Run the startup steps after each load of the state, until cancelled."""
        while True:
            await self._loaded.wait()
            self._loaded.clear()
            await self._identity.verify_identity()
            if self._restored:
                self._restored = False
                self._elections.end_restored_campaigns()
                await self._restores.end_backup_terms()
            await self._bootstrap.run()
            if not self._loaded.is_set():
                self.bootstrapped.set()

    def drain(self) -> None:
        """Refuse all further calls."""
        self._stopping = True

    def readiness(self) -> str | None:
        """Return the reason why the server is not ready; None if it is ready."""
        if self._stopping:
            return "the server is shutting down"
        if not self._cacher.ready:
            return "the watch cache is not loaded, or its etcd watch is interrupted"
        return None if self.bootstrapped.is_set() else "the default namespaces and roles have not been created"

    def refusal(self) -> Refusal | None:
        """Return the refusal for all calls; None if the server accepts calls."""
        if self._stopping:
            self.turned_away += 1
            return shutting_down()
        return None if self.bootstrapped.is_set() else cache_not_loaded()

    def resource_gate(self, resource: Resource[Any]) -> Gate:
        """Return a gate that also refuses calls while the cache of the resource is not loaded."""
        cache = self._cacher.cache_of(resource)
        return lambda: self.refusal() or (None if cache.loaded else cache_not_loaded())

    def _close(self) -> None:
        """Close the server after a reload of the state."""
        self.bootstrapped.clear()
        if self._cacher.restored:
            self._restored = True
            self._restores.record_restore()
        self._loaded.set()


class ClusterMismatch(FatalError):
    """The keys in etcd belong to another cluster."""


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """The identity of a cluster. `authorities` contains the SHA-256 fingerprint of each CA certificate in hexadecimal; it is
    empty without TLS."""

    id: str
    authorities: frozenset[str] = frozenset()

    def encode(self) -> bytes:
        return json.dumps({"id": self.id, "authorities": sorted(self.authorities)}).encode()

    @classmethod
    def decode(cls, value: bytes) -> IdentityRecord:
        """Raises ValueError."""
        fields = json.loads(value)
        if not isinstance(fields, dict) or not isinstance(fields.get("id"), str):
            raise ValueError("no id")
        return cls(fields["id"], frozenset(map(str, fields.get("authorities", ()))))


@dataclass(frozen=True, slots=True)
class IdentityClaim:
    """The configured cluster of a server. `id` is "" if --cluster-id is not set. `where` describes etcd in messages."""

    id: str = ""
    authorities: Callable[[], frozenset[str]] = frozenset
    where: str = "etcd"


def authority_reader(path: Path) -> Callable[[], frozenset[str]]:
    """Return a function that reads the fingerprints of the certificates in a PEM file. If the file cannot be read, it returns
    the result of the last successful read."""
    last = frozenset[str]()

    def read() -> frozenset[str]:
        nonlocal last
        try:
            certificates = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read: %s", path, error)
        else:
            last = frozenset(certificate.fingerprint(hashes.SHA256()).hex() for certificate in certificates)
        return last

    return read


def reconcile_identity(found: IdentityRecord, own: IdentityRecord, where: str) -> IdentityRecord:
    """Return the identity to store; `found` if nothing changes. `own.id` is "" if it is unknown. Raises ClusterMismatch."""
    if own.id:
        same = own.id == found.id
    else:
        same = bool(own.authorities & found.authorities) or not (own.authorities or found.authorities)
    if not same:
        raise ClusterMismatch(_identity_mismatch(found, own, where))
    return IdentityRecord(found.id, found.authorities | own.authorities)


def _identity_mismatch(found: IdentityRecord, own: IdentityRecord, where: str) -> str:
    message = f"{where} contains the cluster {_describe_identity(found)}, but this API server belongs to "
    message += f"the cluster {_describe_identity(own)}" if own.id else f"another cluster ({_describe_authorities(own)})"
    message += "; use another etcd or another --etcd-prefix"
    if not own.id:
        message += f". If the cluster has a new CA, start the server with --cluster-id {found.id}"
    return message


def _describe_identity(identity: IdentityRecord) -> str:
    return f"{identity.id} ({_describe_authorities(identity)})"


def _describe_authorities(identity: IdentityRecord) -> str:
    if not identity.authorities:
        return "without TLS"
    return "client CA SHA-256 " + ", ".join(
        sorted(f"{authority[:FINGERPRINT_LENGTH]}..." for authority in identity.authorities)
    )


class ClusterIdentity:
    """Verifies the identity of the cluster in etcd. Call `verify_identity` before the first write and after each reload of the
    state, and keep `run` running."""

    def __init__(self, storage: Storage, claim: IdentityClaim, clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._claim = claim
        self._clock = clock
        self._rng = rng
        self._known = claim.id
        self._checked = frozenset[str]()

    async def verify_identity(self) -> None:
        """Return when the identity matches. While etcd is unavailable, retry. Raises ClusterMismatch."""
        while True:
            try:
                await self._verify_once()
                return
            except OutOfSpace:
                log.warning("etcd is out of space: the identity of the cluster cannot be written")
                return
            except StorageError as error:
                log.warning("cannot read the identity of the cluster: %s", error)
                await self._clock.sleep(RETRY)

    async def run(self) -> None:
        """Store new CAs of the CA file, until cancelled. Raises ClusterMismatch."""
        while True:
            await self._clock.sleep(IDENTITY_CHECK_INTERVAL)
            if self._claim.authorities() != self._checked:
                await self.verify_identity()

    async def _verify_once(self) -> None:
        result = await self._storage.get(CLUSTER_KEY)
        own = IdentityRecord(self._known, self._claim.authorities())
        while True:
            wanted = self._next_identity(result, own)
            if result is not None and wanted.encode() == result.value:
                break
            written = await self._storage.transact(
                [Write(CLUSTER_KEY, wanted.encode(), result.mod_revision if result is not None else 0)]
            )
            if isinstance(written, Committed):
                break
            result = written.current[CLUSTER_KEY]
        if wanted.id != self._known:
            log.info("the cluster ID is %s", wanted.id)
        self._known, self._checked = wanted.id, own.authorities

    def _next_identity(self, found: KeyValue | None, own: IdentityRecord) -> IdentityRecord:
        if found is None:
            return IdentityRecord(own.id or new_uid(self._rng), own.authorities)
        try:
            return reconcile_identity(IdentityRecord.decode(found.value), own, self._claim.where)
        except ValueError as error:
            raise ClusterMismatch(f"{self._claim.where}: key {CLUSTER_KEY} is not a valid cluster identity: {error}") from None


class Bootstrap:
    """Creates and completes the bootstrap objects."""

    def __init__(
        self,
        stores: Mapping[Resource[Any], Store[Any]],
        cacher: Cacher,
        clock: Clock,
        networks: Sequence[str],
        aggregator: RoleAggregator,
        *,
        has_accounts: bool = False,
    ) -> None:
        """`networks`: the networks of cluster IPs. `has_accounts`: pods need service accounts."""
        self._has_accounts = has_accounts
        self._stores = stores
        self._cacher = cacher
        self._clock = clock
        self._networks = networks
        self._aggregator = aggregator

    async def run(self) -> None:
        """Return when all bootstrap objects are complete. Call it when the cacher is loaded. If all objects are complete, it
        does not write, so a server can start while etcd accepts no writes."""
        while refused := await self._create_defaults() or await self._aggregate_roles():
            problems = [refusal.message for refusal in refused if refusal.code not in _OVERTAKEN]
            if problem := problems[0] if problems else await self._wait_for_cache():
                log.warning("cannot create the bootstrap objects: %s", problem, extra=BootstrapFailed(problem).extra)
                await self._clock.sleep(BOOTSTRAP_RETRY_DELAY)

    async def _aggregate_roles(self) -> Sequence[Refusal]:
        try:
            return await self._aggregator.run()
        except (StorageError, CacheError) as error:
            return [Refusal(Code.UNAVAILABLE, "Unavailable", str(error))]

    async def _wait_for_cache(self) -> str:
        """Wait until the cache contains the writes of other servers. Return the error, or ""."""
        try:
            await self._cacher.wait_until_fresh(READ_TIMEOUT)
        except (StorageError, CacheBehind) as error:
            return str(error)
        return ""

    async def _create_defaults(self) -> Sequence[Refusal]:
        """Return the refusals of all failed writes. Objects that cannot be decoded are ignored, because only an administrator
        can repair them."""
        return [
            *await self._create_or_complete(NAMESPACES, map(_build_namespace, PERMANENT_NAMESPACES)),
            *await self._create_or_complete(CLUSTER_ROLES, rbac.cluster_roles()),
            *await self._create_or_complete(CLUSTER_ROLE_BINDINGS, rbac.cluster_role_bindings()),
            *await self._create_or_complete(PRIORITY_CLASSES, policy.system_classes()),
            *await self._create_accounts(),
            *await self._create_service_cidr(),
        ]

    async def _create_accounts(self) -> Sequence[Refusal]:
        """Create the default service accounts of the permanent namespaces, so that the first pods need not wait for the
        controllers, which create those of other namespaces."""
        cache = self._cacher.cache_of(SERVICE_ACCOUNTS)
        missing = [
            ServiceAccount(metadata=ObjectMeta(namespace=namespace, name=DEFAULT_ACCOUNT))
            for namespace in (PERMANENT_NAMESPACES if self._has_accounts else ())
            if cache.get(SERVICE_ACCOUNTS.key(namespace, DEFAULT_ACCOUNT)) is None
        ]
        outcomes = await self._stores[SERVICE_ACCOUNTS].create(missing, _BOOTSTRAP_REQUEST) if missing else []
        return [outcome for outcome in outcomes if isinstance(outcome, Refusal) and outcome.reason != errors.UNREADABLE]

    async def _create_service_cidr(self) -> Sequence[Refusal]:
        """Create the default ServiceCIDR. An existing one is kept: services have addresses from its networks."""
        entry = self._cacher.cache_of(SERVICE_CIDRS).get(SERVICE_CIDRS.key("", DEFAULT_CIDR))
        if entry is None:
            cidr = ServiceCIDR()
            cidr.metadata.name = DEFAULT_CIDR
            cidr.spec.cidrs.extend(self._networks)
            outcomes = await self._stores[SERVICE_CIDRS].create([cidr], _BOOTSTRAP_REQUEST)
            return [outcome for outcome in outcomes if isinstance(outcome, Refusal) and outcome.reason != errors.UNREADABLE]
        if list(entry.obj.spec.cidrs) != list(self._networks):
            kept, wanted = ", ".join(entry.obj.spec.cidrs), ", ".join(self._networks)
            log.warning("ServiceCIDR %s keeps %s: --service-cluster-ip-range %s has no effect", DEFAULT_CIDR, kept, wanted)
        return []

    async def _create_or_complete(self, resource: Resource[Any], wanted: Iterable[Any]) -> Sequence[Refusal]:
        cache, store = self._cacher.cache_of(resource), self._stores[resource]
        missing, lacking, others = [], [], []
        for role_binding in wanted:
            entry = cache.get(resource.key("", role_binding.metadata.name))
            if entry is None:
                missing.append(role_binding)
            elif entry.obj.metadata.annotations.get(rbac.AUTOUPDATE) == "false":
                continue
            elif isinstance(role_binding, ClusterRoleBinding) and role_binding.roleRef != entry.obj.roleRef:
                others.append((entry.obj, role_binding))
            elif (completed := _with_missing_parts(entry.obj, role_binding)) is not None:
                lacking.append(completed)
        gone, refused = await self._delete_outdated(resource, [result for result, _ in others])
        missing += [each for _, each in others if each.metadata.name in gone]
        created = await store.create(missing, _BOOTSTRAP_REQUEST) if missing else []
        updated = await store.update(lacking, _BOOTSTRAP_REQUEST) if lacking else []
        refused += [outcome for outcome in (*created, *updated) if isinstance(outcome, Refusal)]
        return [refusal for refusal in refused if refusal.reason != errors.UNREADABLE]

    async def _delete_outdated(self, resource: Resource[Any], found: Iterable[Any]) -> tuple[set[str], list[Refusal]]:
        """Delete the bindings. Return the deleted names and the refusals. Bindings with finalizers are skipped, because their
        deletion is not immediate."""
        doomed = list[DeleteRequest]()
        for item in found:
            name = item.metadata.name
            if item.metadata.finalizers:
                log.warning('%s "%s" does not refer to its default role. It has finalizers and is kept', resource.kind, name)
                continue
            log.warning('%s "%s" does not refer to its default role. It is deleted and created again', resource.kind, name)
            doomed.append(DeleteRequest(name=name))
            doomed[-1].options.preconditions.uid = item.metadata.uid
            doomed[-1].options.preconditions.resourceVersion = item.metadata.resourceVersion
        outcomes = await self._stores[resource].delete(doomed, _BOOTSTRAP_REQUEST) if doomed else []
        gone, refused = set[str](), list[Refusal]()
        for request, outcome in zip(doomed, outcomes, strict=True):
            if isinstance(outcome, Refusal) and outcome.code is not Code.NOT_FOUND:
                refused.append(outcome)
            else:
                gone.add(request.name)
        return gone, refused


def _build_namespace(name: str) -> Namespace:
    namespace = Namespace()
    namespace.metadata.name = name
    return namespace


def _with_missing_parts(found: Any, wanted: Any) -> Any | None:
    """Return `found` with the missing parts of `wanted`; None if nothing is missing."""
    completed = type(found)()
    completed.CopyFrom(found)
    for there, parts in zip(_mergeable_lists(completed), _mergeable_lists(wanted), strict=True):
        for part in parts:
            if not _contains_part(there, part):
                there.append(part)
    for field in ("labels", "annotations"):
        there = getattr(completed.metadata, field)
        there.update({key: value for key, value in getattr(wanted.metadata, field).items() if key not in there})
    return completed if completed != found else None


def _contains_part(there: Any, part: Any) -> bool:
    """Report whether the list contains the part, or for a rule, whether the other rules cover it."""
    return part in there or (isinstance(part, PolicyRule) and RuleCover(there).covers(part))


def _mergeable_lists(obj: Message) -> Sequence[Any]:
    """Return the lists of a bootstrap object to which missing items are added."""
    match obj:
        case ClusterRole():
            return obj.rules, obj.aggregationRule.clusterRoleSelectors
        case ClusterRoleBinding():
            return (obj.subjects,)
        case _:
            return ()


class Migration:
    """Rewrites stored objects in the current format."""

    def __init__(self, storage: Storage, stores: Mapping[Resource[Any], Store[Any]], cacher: Cacher, clock: Clock) -> None:
        self._storage = storage
        self._stores = stores
        self._cacher = cacher
        self._clock = clock

    async def run(self) -> None:
        """Return when the whole store has the current format. Call it when the caches are loaded."""
        while not await self._migrate_once():
            await self._clock.sleep(RETRY_DELAY)

    async def _migrate_once(self) -> bool:
        try:
            result = await self._storage.get(STORAGE_FORMAT_KEY)
            if result is not None and result.value == FORMAT:
                return True
            if not all(self._cacher.cache_of(resource).loaded for resource in self._stores):
                return False
            refused = [refusal for resource, store in self._stores.items() for refusal in await self._migrate(resource, store)]
            if refused:
                log.warning(
                    "%d objects could not be migrated to storage format %s: %s", len(refused), FORMAT, refused[0].message
                )
                return False
            await self._storage.transact([Write(STORAGE_FORMAT_KEY, FORMAT, result.mod_revision if result else 0)])
        except (WriteConflict, StorageError) as error:
            log.warning("the migration of stored objects failed and will be retried: %s", error)
            return False
        return True

    async def _migrate(self, resource: Resource[Any], store: Store[Any]) -> list[Refusal]:
        """Rewrite the objects of one resource. Return the refusals."""
        if not has_quantities(resource.message.DESCRIPTOR):
            return []
        entries = self._cacher.cache_of(resource).select(SelectionPredicate.parse(resource, "", "", ""))
        stale = [
            each
            for each, due in zip(entries, await apply_in_slices(_needs_migration, entries, self._clock), strict=True)
            if due
        ]
        refused: list[Refusal] = []
        for start in range(0, len(stale), BATCH):
            batch = [_rewrite_mutation(resource, cache_entry) for cache_entry in stale[start : start + BATCH]]
            outcomes = await store.run_mutations(batch)
            refused += [outcome for outcome in outcomes if isinstance(outcome, Refusal) and outcome.code is not Code.NOT_FOUND]
        if stale:
            log.info("migrated %d of %d %s to canonical quantities", len(stale) - len(refused), len(entries), resource.plural)
        return refused


def _needs_migration(entry: CacheEntry[Any]) -> bool:
    stored = entry.parse_uncached()
    canonical = type(stored)()
    canonical.CopyFrom(stored)
    canonicalize(canonical)
    return bool(canonical != stored)


def _rewrite_mutation(resource: Resource[Any], entry: CacheEntry[Any]) -> Mutation[Any]:
    name = entry.parse_uncached().metadata.name

    def step(version: ObjectVersion[Any] | None) -> Next[Any]:
        if version is None:
            raise Rejected(errors.not_found(resource, name))
        new = copy_without_version(resource, version.obj)
        canonicalize(new)
        return PutObject(new)

    return Mutation(entry.key, name, step)
