"""The webhooks of all configurations, and which of them a write concerns.

The configurations are compiled when they change, into webhooks in the order of their calls: by the name of the configuration,
then by their position in it. The webhooks that concern the writes of a resource are computed once for each operation. So a
write that no webhook concerns costs one dictionary lookup. Policies use the same index.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pinnace.api.admissionregistration_v1_pb2 import MutatingWebhookConfiguration
from pinnace.api.conversion import served_versions
from pinnace.api.resources import Resource
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.cacher.store import CacheBehind, CacheEntry
from pinnace.apiserver.errors import Rejected, to_refusal
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.apiserver.registry.strategies.admissionregistration import DEFAULT_TIMEOUT, REVIEW_VERSIONS
from pinnace.apiserver.webhooks.client import WebhookTarget
from pinnace.apiserver.webhooks.conditions import WebhookConditions
from pinnace.apiserver.webhooks.matching import GROUP, Selectors, Target, match_rules

MAX_REMEMBERED = 10_000
"""Operations on resources whose webhooks are remembered."""
IGNORE, IF_NEEDED = "Ignore", "IfNeeded"
_NO_EFFECTS = ("None", "NoneOnDryRun")


@dataclass(frozen=True, eq=False)
class Webhook:
    """A compiled webhook of a configuration."""

    configuration: str
    name: str
    mutating: bool
    target: WebhookTarget
    rules: Sequence[Any]
    match_policy: str
    selectors: Selectors
    conditions: WebhookConditions
    ignores_failures: bool
    timeout: int
    """In seconds."""
    allows_dry_run: bool
    review_version: str
    """The version of AdmissionReview; "" if the webhook accepts none that the server knows."""
    is_reinvoked: bool = False


def compile_webhooks(configuration: Any) -> list[Webhook]:
    """Return the webhooks of a ValidatingWebhookConfiguration or MutatingWebhookConfiguration."""
    mutating = isinstance(configuration, MutatingWebhookConfiguration)
    return [_compile_webhook(configuration.metadata.name, webhook, mutating) for webhook in configuration.webhooks]


def _compile_webhook(configuration: str, webhook: Any, mutating: bool) -> Webhook:
    ignores_failures = webhook.failurePolicy == IGNORE
    return Webhook(
        configuration=configuration,
        name=webhook.name,
        mutating=mutating,
        target=WebhookTarget.from_config(webhook.clientConfig),
        rules=list(webhook.rules),
        match_policy=webhook.matchPolicy,
        selectors=Selectors.from_source(webhook),
        conditions=WebhookConditions(webhook.matchConditions, ignores_failures=ignores_failures),
        ignores_failures=ignores_failures,
        timeout=webhook.timeoutSeconds or DEFAULT_TIMEOUT,
        allows_dry_run=webhook.sideEffects in _NO_EFFECTS,
        review_version=next((version for version in webhook.admissionReviewVersions if version in REVIEW_VERSIONS), ""),
        is_reinvoked=mutating and webhook.reinvocationPolicy == IF_NEEDED,
    )


class WebhookMatch(NamedTuple):
    """A webhook, and the API version in which it receives the objects."""

    webhook: Webhook
    api_version: str


class WebhookMatches(NamedTuple):
    """The webhooks that concern the writes of a resource, before their selectors and conditions."""

    mutating: Sequence[WebhookMatch] = ()
    validating: Sequence[WebhookMatch] = ()


NO_MATCHES = WebhookMatches()


M = TypeVar("M")


class ConfigurationIndex(ABC, Generic[M]):
    """What concerns the writes of each resource, from the objects in some caches. Implements CacheObserver for each of them."""

    def __init__(self, caches: Iterable[ResourceCache[Any]], nothing: M) -> None:
        """`nothing`: the result if no configuration concerns a write."""
        self._caches = list(caches)
        self._nothing = nothing
        self._stale = True
        self._is_empty = True
        self._matches: dict[tuple[Any, ...], M] = {}
        for cache in self._caches:
            cache.observe(self)

    @abstractmethod
    def _compile(self, entries: Sequence[CacheEntry[Any]]) -> bool:
        """Compile the objects. Return whether there is anything that concerns writes."""

    @abstractmethod
    def _match(self, target: Target) -> M:
        """Return the entries that concern the writes of a target."""

    def reset_entries(self, entries: Iterable[CacheEntry[Any]]) -> None:
        self._stale = True

    def handle_change(self, old: CacheEntry[Any] | None, new: CacheEntry[Any] | None) -> None:
        self._stale = True

    def match_request(self, request: WriteRequest, operation: str, resource: Resource[Any], subresource: str) -> M:
        """Return the entries that may concern such writes, in the order of its use. Raises Rejected while it is not known."""
        if self._stale:
            self._compile_changes()
        if self._is_empty:
            return self._nothing
        key = (operation, resource, subresource, request.api_version)
        matches = self._matches.get(key)
        if matches is None:
            if len(self._matches) >= MAX_REMEMBERED:
                self._matches.clear()
            matches = self._matches[key] = self._match_resource(request, operation, resource, subresource)
        return matches

    def _match_resource(self, request: WriteRequest, operation: str, resource: Resource[Any], subresource: str) -> M:
        if resource.group == GROUP:
            return self._nothing
        requested = request.api_version or resource.api_version
        others = [version for version in served_versions(resource) if version != requested]
        return self._match(Target(operation, (requested, *others), resource.plural, subresource, resource.namespaced))

    def _compile_changes(self) -> None:
        try:
            entries = [entry for cache in self._caches for entry in cache.entries()]
        except CacheBehind as error:  # a write may not bypass admission
            raise Rejected(to_refusal(error, "admission")) from None
        self._is_empty = not self._compile(sorted(entries, key=lambda entry: entry.key))
        self._matches = {}
        self._stale = False


class WebhookConfigurations(ConfigurationIndex[WebhookMatches]):
    """The webhooks of the configurations in two caches."""

    def __init__(self, caches: Iterable[ResourceCache[Any]]) -> None:
        super().__init__(caches, NO_MATCHES)
        self._webhooks: Sequence[Webhook] = ()
        self._compiled: dict[str, tuple[CacheEntry[Any], Sequence[Webhook]]] = {}

    def _compile(self, entries: Sequence[CacheEntry[Any]]) -> bool:
        compiled = dict[str, tuple[CacheEntry[Any], Sequence[Webhook]]]()
        for entry in entries:
            known = self._compiled.get(entry.key)
            compiled[entry.key] = known if known is not None and known[0] is entry else (entry, compile_webhooks(entry.obj))
        self._compiled = compiled
        self._webhooks = [webhook for _, webhooks in compiled.values() for webhook in webhooks]
        return bool(self._webhooks)

    def _match(self, target: Target) -> WebhookMatches:
        found = [
            WebhookMatch(webhook, version)
            for webhook in self._webhooks
            if (version := match_rules(webhook.rules, webhook.match_policy, target))
        ]
        return WebhookMatches(
            [match for match in found if match.webhook.mutating], [match for match in found if not match.webhook.mutating]
        )
