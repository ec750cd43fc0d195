"""Reviews of writes by webhooks (pinnace.apiserver.webhooks.reviewers has the order of reviews).

**Mutating webhooks** are called in the order of their configurations. Each receives the object that the previous one returned,
with defaults.

**Validating webhooks** are called in parallel. If several deny the write, the error of the first one is returned.

While a call waits for a webhook, it holds no seats (apiserver.flow).

Source: pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go of k8s.io/apiserver 1.36, and its messages.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import Any, NamedTuple, Protocol

from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.names import new_uid
from pinnace.api.resources import Resource
from pinnace.api.status import Code, Refusal
from pinnace.apiserver.auth.audit import annotate
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.control import release_current_seat
from pinnace.apiserver.registry.admission import DELETE, WriteAttributes, WriteRequest
from pinnace.apiserver.registry.strategy import add_warnings
from pinnace.apiserver.webhooks.authorizer import Decide, authorizer_bindings
from pinnace.apiserver.webhooks.client import TooManyCalls, WebhookCallError, WebhookClient
from pinnace.apiserver.webhooks.configurations import Webhook, WebhookConfigurations, WebhookMatch
from pinnace.apiserver.webhooks.matching import NamespaceLabels, matches_selectors
from pinnace.apiserver.webhooks.review import (
    InvalidResponse,
    ReviewForms,
    ReviewResponse,
    apply_patch,
    build_review,
    http_refusal,
    internal_error,
    parse_review,
    qualified_name,
    review_attributes,
    status_details,
    webhook_denial,
)
from pinnace.runtime.clock import Clock
from pinnace.runtime.logs import WebhookFailed

log = logging.getLogger(__name__)

RETRY_AFTER = 1.0
"""Seconds after which a client can retry a refused request."""
QUIET = 30.0
"""Minimum seconds between two log lines about failures of a webhook. Failures in between are counted."""
MUTATION_ANNOTATION = "mutation.webhook.admission.k8s.io/"
PATCH_ANNOTATION = "patch.webhook.admission.k8s.io/"
FAILED_OPEN = "failed-open."
VALIDATION_ANNOTATION = "validating.webhook.admission.k8s.io/"
_OK, _UNAVAILABLE = 200, 503


class WebhookMetrics(Protocol):
    """Metrics of webhooks. `kind` is "admit" for mutating webhooks and "validating" for validating ones, as in Kubernetes.
    `code`: the HTTP status code of the verdict or of the failure."""

    def record_answer(self, name: str, kind: str, operation: str, code: int, allowed: bool, seconds: float) -> None: ...

    def record_failure(self, name: str, kind: str, operation: str, code: int, ignored: bool, seconds: float) -> None: ...

    def record_full_queue(self, name: str, kind: str, operation: str, seconds: float) -> None:
        """Count a request that was refused because the queue is full."""
        ...

    def record_match_condition_exclusion(self, name: str, kind: str, operation: str) -> None:
        """Count a request that the match conditions exclude."""
        ...


class Reinvocation:
    """Which webhooks or policies are used again in the second round of a write: those that need it, and after which the object
    changed. `output`: the object after the last use."""

    def __init__(self) -> None:
        self.previous: list[Any] = []
        self.again: set[Any] = set()
        self.output: Any = None

    def require_previous(self) -> None:
        """Use those again that were used before, because the object has changed."""
        self.again.update(self.previous)
        self.previous = []


class _MutatedObject(NamedTuple):
    obj: Any
    has_changed: bool


class WebhookAdmission:
    """The webhooks of all configurations."""

    def __init__(
        self,
        configurations: WebhookConfigurations,
        namespaces: ResourceCache[Namespace],
        client: WebhookClient,
        decide: Decide,
        meter: WebhookMetrics,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._configurations = configurations
        self._namespaces = NamespaceLabels(namespaces)
        self._client = client
        self._decide = decide
        self._meter = meter
        self._clock = clock
        self._rng = rng
        self._failures = FailureLog(clock)

    def may_match(self, request: WriteRequest, operation: str, resource: Resource[Any], subresource: str) -> bool:
        """Return whether a webhook may match such writes."""
        matches = self._configurations.match_request(request, operation, resource, subresource)
        return bool(matches.mutating or matches.validating)

    async def mutate(self, change: WriteAttributes, state: Reinvocation, round_number: int) -> Any:
        """Call the mutating webhooks and return the object. In the second round, only those that `state` names are called.
        Raises Rejected."""
        matches = self._configurations.match_request(
            change.request, change.operation, change.resource, change.subresource
        ).mutating
        for index, match in enumerate(matches):
            webhook = match.webhook
            if round_number and webhook not in state.again:
                continue
            forms = ReviewForms(change, hides_identity=True)
            if not await self._selects_write(match, change, forms, mutating=True):
                continue
            release_current_seat()
            mutated = await self._call_mutating(match, change, forms, f"round_{round_number}_index_{index}")
            if mutated.has_changed:
                change = change._replace(obj=mutated.obj)
                state.require_previous()
            if webhook.is_reinvoked:
                state.previous.append(webhook)
        return change.obj

    async def validate(self, change: WriteAttributes) -> None:
        """Call the validating webhooks. Raises Rejected."""
        matches = self._configurations.match_request(
            change.request, change.operation, change.resource, change.subresource
        ).validating
        forms = ReviewForms(change)
        selected = [match for match in matches if await self._selects_write(match, change, forms, mutating=False)]
        if not selected:
            return
        release_current_seat()
        calls = (self._call_validating(match, change, forms, index) for index, match in enumerate(selected))
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _selects_write(self, match: WebhookMatch, change: WriteAttributes, forms: ReviewForms, *, mutating: bool) -> bool:
        """Return whether the selectors and the conditions of a webhook select the write. Raises Rejected."""
        webhook = match.webhook
        if not matches_selectors(webhook.selectors, change, self._namespaces):
            return False
        if not webhook.conditions:
            return True
        conditions = await webhook.conditions.compiled()
        bindings = {
            "object": forms.parse(forms.obj(match.api_version)),
            "oldObject": forms.parse(forms.old(match.api_version)),
            "request": review_attributes(change, new_uid(self._rng), match.api_version, mutating=mutating),
            "namespaceObject": None,
            **authorizer_bindings(self._decide, change),
        }
        result = conditions.evaluate(bindings)
        if result.error:
            message = f"{qualified_name(change)} is forbidden: {result.error}"
            raise Rejected(http_refusal(403, "Forbidden", message, status_details(change)))
        if not result.matches:
            self._meter.record_match_condition_exclusion(webhook.name, _kind_of(webhook), change.operation)
        return result.matches

    async def _call_mutating(
        self, match: WebhookMatch, change: WriteAttributes, forms: ReviewForms, place: str
    ) -> _MutatedObject:
        webhook, has_changed = match.webhook, False
        annotation = {"configuration": webhook.configuration, "webhook": webhook.name}
        try:
            response = await self._call(match, change, forms, f"{FAILED_OPEN}{MUTATION_ANNOTATION}{place}")
            if response is None or not response.patch:
                return _MutatedObject(change.obj, False)
            if change.obj is None or change.operation == DELETE:
                problem = "attempted to modify the object, which is not supported for this operation"
                raise Rejected(internal_error(f'admission webhook "{webhook.name}" {problem}'))
            try:
                obj = apply_patch(change, forms.obj(match.api_version), response.patch, match.api_version)
            except ValueError as error:
                raise Rejected(internal_error(str(error))) from None
            change.complete(obj)
            has_changed = obj != change.obj
            patched = annotation | {"patch": response.patch, "patchType": "JSONPatch"}
            annotate(f"{PATCH_ANNOTATION}{place}", json.dumps(patched, separators=(",", ":")))
            return _MutatedObject(obj, has_changed)
        finally:
            annotate(f"{MUTATION_ANNOTATION}{place}", json.dumps(annotation | {"mutated": has_changed}, separators=(",", ":")))

    async def _call_validating(self, match: WebhookMatch, change: WriteAttributes, forms: ReviewForms, index: int) -> None:
        await self._call(match, change, forms, f"{FAILED_OPEN}{VALIDATION_ANNOTATION}round_0_index_{index}")

    async def _call(
        self, match: WebhookMatch, change: WriteAttributes, forms: ReviewForms, failed_open: str
    ) -> ReviewResponse | None:
        """Call a webhook and return its response, which allows the write; None if the call failed and the failurePolicy is
        Ignore. Raises Rejected."""
        webhook, operation = match.webhook, change.operation
        name, kind, began = webhook.name, _kind_of(webhook), self._clock.monotonic()
        if change.request.dry_run and not webhook.allows_dry_run:
            raise Rejected(http_refusal(400, "BadRequest", f'admission webhook "{name}" does not support dry run'))
        try:
            response = await self._post_review(match, change, forms)
        except TooManyCalls as crowd:
            self._meter.record_full_queue(name, kind, operation, self._clock.monotonic() - began)
            message = f'too many requests, please try again later: {crowd} are waiting for admission webhook "{name}"'
            raise Rejected(Refusal(Code.UNAVAILABLE, "TooManyRequests", message, retry_after=RETRY_AFTER)) from None
        except WebhookCallError as error:
            seconds = self._clock.monotonic() - began
            self._meter.record_failure(name, kind, operation, error.code, webhook.ignores_failures, seconds)
            self._failures.record(webhook, str(error))
            if webhook.ignores_failures:
                annotate(failed_open, name)
                return None
            raise Rejected(internal_error(f'failed calling webhook "{name}": {error}')) from None
        code = _OK if response.allowed else response.code or 400
        self._meter.record_answer(name, kind, operation, code, response.allowed, self._clock.monotonic() - began)
        for key, value in response.audit_annotations.items():
            annotate(f"{name}/{key}", value)
        add_warnings(response.warnings)
        if not response.allowed:
            raise Rejected(webhook_denial(name, response))
        return response

    async def _post_review(self, match: WebhookMatch, change: WriteAttributes, forms: ReviewForms) -> ReviewResponse:
        """Raises WebhookCallError, TooManyCalls."""
        webhook, version = match.webhook, match.webhook.review_version
        if not version:
            problem = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise WebhookCallError(f"could not create admission objects: {problem}", 400)
        uid = new_uid(self._rng)
        review = build_review(change, forms, uid, match.api_version, version, mutating=webhook.mutating)
        try:
            body = await self._client.post(webhook.target, review, webhook.timeout, change.request.user.name)
        except WebhookCallError as error:
            raise WebhookCallError(f"failed to call webhook: {error}", error.code) from None
        try:
            return parse_review(body, uid, version, mutating=webhook.mutating)
        except InvalidResponse as error:
            raise WebhookCallError(f"{error.prefix}{error}", _UNAVAILABLE) from None


def _kind_of(webhook: Webhook) -> str:
    return "admit" if webhook.mutating else "validating"


class FailureLog:
    """Logs failed calls: at most one line per webhook in QUIET seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}
        """The time of the last line, and the number of failures since then, by name of the webhook."""

    def record(self, webhook: Webhook, error: str) -> None:
        now = self._clock.monotonic()
        at, suppressed = self._logged.get(webhook.name, (-QUIET, 0))
        if now - at < QUIET:
            self._logged[webhook.name] = at, suppressed + 1
            return
        if len(self._logged) > 10_000:
            self._logged.clear()
        more = f" ({suppressed} more before)" if suppressed else ""
        done = "ignored by failurePolicy" if webhook.ignores_failures else "request refused"
        failed = WebhookFailed(webhook.name, webhook.ignores_failures, suppressed).extra
        log.warning("failed calling webhook %s, %s: %s%s", webhook.name, done, error, more, extra=failed)
        self._logged[webhook.name] = now, 0
