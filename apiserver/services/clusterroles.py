"""ClusterRoles, and the rules of those that aggregate others.

The rules of a ClusterRole with an aggregationRule are those of the ClusterRoles that it selects. Its own rules are replaced. In
Kubernetes, a controller writes them. Here, the API server writes them after each change of a ClusterRole, before it responds,
and at its start. Authorization does not depend on this write: it computes the rules (apiserver.auth.rbac). If a server stops
between the two writes, the stored rules remain old until the next change or start.

Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles
"""

import logging
from collections.abc import Awaitable, Iterable, Sequence

from pinnace.api.rbac_v1_pb2 import ClusterRole, PolicyRule
from pinnace.api.resources import CLUSTER_ROLES
from pinnace.api.status import Refusal
from pinnace.apiserver import errors
from pinnace.apiserver.auth.audit import AuditSink
from pinnace.apiserver.auth.authorizer import Authorizer
from pinnace.apiserver.auth.rbac import RbacAuthorizer
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheEntry, CacheError, SelectionPredicate
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.apiserver.registry.deletion import copy_without_version
from pinnace.apiserver.registry.mutation import Mutation, Next, ObjectVersion, Outcome, PutObject, WriteResult
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.services.resource import NamedObject, ResourceService
from pinnace.apiserver.storage.interface import StorageError

log = logging.getLogger(__name__)

READ_TIMEOUT = 5.0
"""Seconds in which the cache must contain the latest change."""
ATTEMPTS = 5
"""Attempts to write rules while other servers change the same ClusterRoles."""


class RoleAggregator:
    """Writes the rules of aggregated ClusterRoles."""

    def __init__(self, store: Store[ClusterRole], cacher: Cacher, rbac: RbacAuthorizer) -> None:
        self._store = store
        self._cacher = cacher
        self._rbac = rbac

    async def run(self) -> Sequence[Refusal]:
        """Write the rules of all roles whose stored rules differ. Return the refusals of the last attempt. Raises CacheError,
        StorageError."""
        refusals: Sequence[Refusal] = ()
        for _ in range(ATTEMPTS):
            await self._cacher.wait_until_fresh(READ_TIMEOUT)
            entries = self._cacher.cache_of(CLUSTER_ROLES).select(SelectionPredicate.parse(CLUSTER_ROLES, "", "", ""))
            due = [mutation for entry in entries if (mutation := self._build_mutation(entry))]
            outcomes = await self._store.run_mutations(due) if due else []
            refusals = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
            if not refusals:
                break
        return refusals

    def _build_mutation(self, entry: CacheEntry[ClusterRole]) -> Mutation[ClusterRole] | None:
        """Return the mutation that writes the rules; None if they are up to date. It does not overwrite a later version, whose
        writer aggregates again."""
        role = entry.parse_uncached()
        if not role.HasField("aggregationRule"):
            return None
        rules = self._rbac.aggregate_rules(role)
        if list(role.rules) == list(rules):
            return None
        name, revision = role.metadata.name, entry.mod_revision

        def step(version: ObjectVersion[ClusterRole] | None) -> Next[ClusterRole]:
            if version is None or version.revision != revision:
                raise Rejected(errors.contended_object(CLUSTER_ROLES, name))
            return PutObject(_replace_rules(version.obj, rules))

        return Mutation(entry.key, name, step)


def _replace_rules(role: ClusterRole, rules: Iterable[PolicyRule]) -> ClusterRole:
    aggregated = copy_without_version(CLUSTER_ROLES, role)
    del aggregated.rules[:]
    aggregated.rules.extend(rules)
    return aggregated


class ClusterRoleService(ResourceService[ClusterRole]):
    def __init__(
        self, store: Store[ClusterRole], cacher: Cacher, audit: AuditSink, authorizer: Authorizer, aggregator: RoleAggregator
    ) -> None:
        super().__init__(store, cacher, audit, authorizer)
        self._aggregator = aggregator

    async def audit_write(
        self, by: WriteRequest, verb: str, subresource: str, named: Iterable[NamedObject], writing: Awaitable[Sequence[Outcome]]
    ) -> Sequence[Outcome]:
        outcomes = await super().audit_write(by, verb, subresource, named, writing)
        if not by.dry_run and any(isinstance(outcome, WriteResult) for outcome in outcomes):
            await self._aggregate()
        return outcomes

    async def _aggregate(self) -> None:
        """The client's write has succeeded, so an error is logged only."""
        try:
            problems = [refusal.message for refusal in await self._aggregator.run()]
        except (CacheError, StorageError) as error:
            problems = [str(error)]
        if problems:
            log.warning("cannot write the rules of aggregated ClusterRoles: %s", problems[0])
