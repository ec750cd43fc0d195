"""Admission webhooks: the calls of a webhook, the order of webhooks, and their configuration.

**Calls.** Admission requests of one event loop iteration are sent in one message:

    ask --> queue --next iteration of the event loop--> ReviewRequest with at most MAX_ITEMS --> responses, or one error for all

Each request ends within the timeout of the webhook. Each webhook has its own queue, so a slow webhook delays only its own
requests. At most MAX_WAITING requests per webhook are open. A user can have at most GREED open requests for each free one.
Further requests are refused immediately, independently of the failurePolicy, because a full queue is not a failure of the
webhook.

**Order.** Mutating webhooks are called one after the other, in the order of the configuration. Each receives the object that
the previous one returned. They are not called again after later changes (no reinvocation). Validating webhooks are called in
parallel. If several deny the request, the error of the first one in the configuration is returned.

Webhooks are not called for writes of the API server itself. Otherwise an unavailable webhook could block the start of a
cluster. While a call waits for a webhook, it holds no seats (apiserver.flow).

**Configuration.** --admission-control-config-file contains YAML documents of the kinds MutatingWebhookConfiguration and
ValidatingWebhookConfiguration, with the fields of Kubernetes except clientConfig:

    apiVersion: admissionregistration.k8s.io/v1
    kind: ValidatingWebhookConfiguration
    metadata: {name: teams}
    webhooks:
    - name: teams.example.com
      clientConfig: {url: grpcs://host:port, caFile: ca.crt}    or grpc://host:port, without TLS
      rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: Namespaced}]
      namespaceSelector: {}
      objectSelector: {}
      failurePolicy: Fail                                       or Ignore
      timeoutSeconds: 10                                        1 to 30
      sideEffects: None                                         or NoneOnDryRun, Some, Unknown

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pinnace.api import admission_pb2 as pb
from pinnace.api import documents, names
from pinnace.api.codec import CodecError, from_dict
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.meta_v1_pb2 import LabelSelector as SelectorMessage
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.patch import parse
from pinnace.api.resources import ALL, NAMESPACES, PODS, Resource
from pinnace.api.selectors import LabelSelector, from_message
from pinnace.api.status import Code, Refusal, Violation, decode
from pinnace.api.verbs_pb2 import PatchRequest
from pinnace.api.wire import portions
from pinnace.apiserver.auth.authentication import SERVER
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.control import release_current_seat
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteAttributes, WriteRequest
from pinnace.apiserver.registry.mutation import FINALIZE, RESIZE, STATUS, patch_function
from pinnace.apiserver.registry.validation.fields import validate_selector
from pinnace.runtime.clock import Clock
from pinnace.runtime.configuration import ConfigurationError, parse_fields, parse_list, parse_text
from pinnace.runtime.http import parse_address
from pinnace.runtime.logs import WebhookFailed

log = logging.getLogger(__name__)

MAX_ITEMS = 500
MAX_WAITING = 10_000
GREED = 4
"""The number of open requests of a user per free one. A single user can have 8,000 open requests (see
apiserver.flow.levels)."""
RETRY_AFTER = 1.0
"""Seconds after which a client can retry a refused request."""
QUIET = 30.0
"""Minimum seconds between two log lines about failures. Failures in between are counted."""
_HINT = "check the logs of the webhook; --admission-control-config-file of the API servers has its address and failurePolicy"
_REFUSALS = frozenset(Code) - {Code.OK}
_OPERATIONS = {
    AdmissionOperation.CREATE: pb.CREATE,
    AdmissionOperation.UPDATE: pb.UPDATE,
    AdmissionOperation.UPDATE_STATUS: pb.UPDATE,
    AdmissionOperation.RESIZE: pb.UPDATE,
    AdmissionOperation.FINALIZE: pb.UPDATE,
    AdmissionOperation.DELETE: pb.DELETE,
}
_SUBRESOURCES = {
    AdmissionOperation.UPDATE_STATUS: STATUS,
    AdmissionOperation.RESIZE: RESIZE,
    AdmissionOperation.FINALIZE: FINALIZE,
}


Amend = Callable[[Any], Any]
"""Returns a modified copy of an object. Raises Rejected."""

API_VERSION = "admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
TIMEOUT, MAX_TIMEOUT = 10, 30
"""The default and the maximum of timeoutSeconds, as in Kubernetes."""
EVERY = LabelSelector()
_NO_EFFECTS = ("None", "NoneOnDryRun")
_SIDE_EFFECTS = (*_NO_EFFECTS, "Some", "Unknown")
_WHOLE = (("CREATE", AdmissionOperation.CREATE), ("UPDATE", AdmissionOperation.UPDATE), ("DELETE", AdmissionOperation.DELETE))
_FIELDS = (
    "name",
    "clientConfig",
    "rules",
    "namespaceSelector",
    "objectSelector",
    "failurePolicy",
    "timeoutSeconds",
    "sideEffects",
)
_RULE_FIELDS = ("operations", "apiGroups", "apiVersions", "resources", "scope")

Concern = tuple[AdmissionOperation, Resource[Any]]


class WebhookError(Exception):
    """The webhook could not be called, or its response is invalid."""


class WebhookTransport(Protocol):
    """The connection to a webhook."""

    async def review(self, request: pb.ReviewRequest, timeout: float) -> pb.ReviewResponse:
        """Send a request. `timeout` is in seconds. Raises WebhookError."""
        ...

    async def close(self) -> None: ...


class WebhookMetrics(Protocol):
    """Metrics of webhooks. `kind` is "admit" for mutating webhooks and "validating" for validating ones, as in Kubernetes."""

    def answered(self, name: str, kind: str, operation: str, allowed: bool, seconds: float) -> None: ...

    def failed(self, name: str, kind: str, operation: str, ignored: bool, seconds: float) -> None: ...

    def crowded(self, name: str, kind: str, operation: str) -> None:
        """Count a request that was refused because the queue is full."""
        ...


class _PendingReview(NamedTuple):
    item: pb.AdmissionRequest
    answer: asyncio.Future[pb.AdmissionResponse]


class Webhook:
    """One webhook with its queue."""

    def __init__(
        self, configuration: WebhookConfiguration, transport: WebhookTransport, meter: WebhookMetrics, clock: Clock
    ) -> None:
        self.configuration = configuration
        self._transport = transport
        self._meter = meter
        self._clock = clock
        self._kind = "admit" if configuration.mutating else "validating"
        self._numbers = count(1)
        self._open = 0
        self._open_of = Counter[str]()  # open requests by user name
        self._waiting: list[_PendingReview] = []
        self._calls: set[asyncio.Task[None]] = set()  # strong references, because the event loop has only weak ones
        self._logged_at: float | None = None  # the time of the last log line about a failure
        self._suppressed = 0

    async def call(self, change: WriteAttributes) -> Any:
        """Call the webhook and return the object, which a mutating webhook can have changed. Raises Rejected."""
        configuration, name = self.configuration, self.configuration.name
        if change.request.dry_run and not configuration.dry_run:
            message = f'admission webhook "{name}" does not support dry run'
            raise Rejected(Refusal(Code.INVALID_ARGUMENT, "BadRequest", message))
        operation, began = pb.Operation.Name(_OPERATIONS[change.operation]), self._clock.monotonic()
        if crowd := self._describe_full_queue(change.request.user.name):
            self._meter.crowded(name, self._kind, operation)
            message = f'too many requests, please try again later: {crowd} are waiting for admission webhook "{name}"'
            raise Rejected(Refusal(Code.UNAVAILABLE, "TooManyRequests", message, retry_after=RETRY_AFTER))
        try:
            answer = await self._queue_review(change)
            amend = self._patch_of_answer(change, answer)
        except WebhookError as error:
            ignored, seconds = configuration.ignore_failures, self._clock.monotonic() - began
            self._meter.failed(name, self._kind, operation, ignored, seconds)
            self._log_failure(error)
            if ignored:
                return change.obj
            message = f'Internal error occurred: failed calling webhook "{name}": {error}'
            raise Rejected(Refusal(Code.INTERNAL, "InternalError", message, metadata=(("hint", _HINT),))) from None
        self._meter.answered(name, self._kind, operation, answer.allowed, self._clock.monotonic() - began)
        if not answer.allowed:
            raise Rejected(self._denial(answer))
        return self._apply_patch(change, amend) if amend is not None else change.obj

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await self._transport.close()

    def _log_failure(self, error: WebhookError) -> None:
        now = self._clock.monotonic()
        if self._logged_at is not None and now - self._logged_at < QUIET:
            self._suppressed += 1
            return
        more = f" ({self._suppressed} more before)" if self._suppressed else ""
        name, ignored = self.configuration.name, self.configuration.ignore_failures
        done = "ignored by failurePolicy" if ignored else "request refused"
        failed = WebhookFailed(name, ignored, self._suppressed).extra
        log.warning("failed calling webhook %s, %s: %s%s", name, done, error, more, extra=failed)
        self._logged_at, self._suppressed = now, 0

    def _describe_full_queue(self, user: str) -> str:
        """Describe the requests that fill the queue; "" if the user can send another request."""
        own, free = self._open_of[user], MAX_WAITING - self._open
        if own and own >= GREED * free:
            return f'{own:,} requests of user "{user}"'
        return "" if free > 0 else f"{MAX_WAITING:,} requests"

    async def _queue_review(self, change: WriteAttributes) -> pb.AdmissionResponse:
        user = change.request.user.name
        loop = asyncio.get_running_loop()
        review = _PendingReview(_review_request(str(next(self._numbers)), change), loop.create_future())
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.append(review)
        self._open += 1
        self._open_of[user] += 1
        try:
            async with asyncio.timeout(self.configuration.timeout):
                return await review.answer
        except TimeoutError:
            raise WebhookError(f"no response within {self.configuration.timeout} s") from None
        finally:
            self._open -= 1
            self._open_of[user] -= 1
            if not self._open_of[user]:
                del self._open_of[user]
            del review  # its error refers to this frame: the object would live until the garbage collection

    def _send(self) -> None:
        """Send all queued requests that are not cancelled."""
        waiting, self._waiting = self._waiting, []
        waiting = [review for review in waiting if not review.answer.done()]
        for portion in portions(waiting, MAX_ITEMS, size=lambda review: review.item.ByteSize()):
            call = asyncio.create_task(self._send_batch(portion))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _send_batch(self, reviews: Sequence[_PendingReview]) -> None:
        request = pb.ReviewRequest(items=[review.item for review in reviews])
        try:
            response = await self._transport.review(request, self.configuration.timeout)
        except WebhookError as error:
            for review in reviews:
                _resolve_review(review, error)
            return
        answers = {answer.uid: answer for answer in response.items}
        for review in reviews:
            _resolve_review(review, answers.get(review.item.uid) or WebhookError("the response does not contain the item"))

    def _denial(self, answer: pb.AdmissionResponse) -> Refusal:
        """Return the refusal with Kubernetes' message (pkg/admission/plugin/webhook/errors of k8s.io/apiserver)."""
        denied = f'admission webhook "{self.configuration.name}" denied the request'
        if answer.status.code not in _REFUSALS:
            answer.status.code = Code.INVALID_ARGUMENT
        status = decode(answer.status)
        explanation = status.message or status.reason
        message = f"{denied}: {explanation}" if explanation else f"{denied} without explanation"
        return Refusal(status.code, status.reason or "AdmissionDenied", message, status.violations)

    def _patch_of_answer(self, change: WriteAttributes, answer: pb.AdmissionResponse) -> Amend | None:
        """Return the function that applies the patch; None if there is no patch. Raises WebhookError if the patch is invalid or
        from a validating webhook."""
        if not answer.patch:
            return None
        if not self.configuration.mutating:
            raise WebhookError("received invalid webhook response: validating webhook may not return response.patch")
        if not answer.allowed:
            return None
        request = PatchRequest(name=_metadata_of(change).name, type=answer.patchType or PatchRequest.MERGE, patch=answer.patch)
        try:
            amend = patch_function(change.resource, request)
        except Rejected as rejected:
            raise WebhookError(rejected.refusal.message) from None
        return None if change.obj is None and not parse(request.patch, request.type) else amend

    def _apply_patch(self, change: WriteAttributes, amend: Amend) -> Any:
        if change.obj is None:
            raise self._webhook_failed(" attempted to modify the object, which is not supported for this operation")
        try:
            return amend(change.obj)
        except Rejected as rejected:
            raise self._webhook_failed(f": {rejected.refusal.message}") from None

    def _webhook_failed(self, how: str) -> Rejected:
        message = f'Internal error occurred: admission webhook "{self.configuration.name}"{how}'
        return Rejected(Refusal(Code.INTERNAL, "InternalError", message, metadata=(("hint", _HINT),)))


def _resolve_review(review: _PendingReview, answer: pb.AdmissionResponse | WebhookError) -> None:
    if review.answer.done():  # cancelled or timed out
        return
    if isinstance(answer, WebhookError):
        review.answer.set_exception(answer)
    else:
        review.answer.set_result(answer)


def _metadata_of(change: WriteAttributes) -> ObjectMeta:
    obj = change.obj or change.old
    assert obj is not None
    return obj.metadata


def _review_request(uid: str, change: WriteAttributes) -> pb.AdmissionRequest:
    of, user = _metadata_of(change), change.request.user
    return pb.AdmissionRequest(
        uid=uid,
        apiVersion=change.resource.api_version,
        kind=change.resource.kind,
        resource=change.resource.plural,
        subResource=_SUBRESOURCES.get(change.operation, ""),
        operation=_OPERATIONS[change.operation],
        namespace=of.namespace,
        name=of.name,
        username=user.name,
        groups=user.groups,
        object=change.obj.SerializeToString() if change.obj is not None else b"",
        oldObject=change.old.SerializeToString() if change.old is not None else b"",
        dryRun=change.request.dry_run,
    )


class WebhookAdmission:
    """All webhooks of the server. It implements pinnace.apiserver.registry.admission.Webhooks."""

    def __init__(self, webhooks: Sequence[Webhook], namespaces: ResourceCache[Namespace]) -> None:
        self._mutating = [webhook for webhook in webhooks if webhook.configuration.mutating]
        self._validating = [webhook for webhook in webhooks if not webhook.configuration.mutating]
        self._concerns = frozenset(concern for webhook in webhooks for concern in webhook.configuration.concerns)
        self._namespaces = namespaces

    def has_matching_webhooks(self, request: WriteRequest, operation: AdmissionOperation, resource: Resource[Any]) -> bool:
        return bool(self._concerns) and (operation, resource) in self._concerns and request.user is not SERVER

    async def mutate(self, change: WriteAttributes) -> Any:
        for webhook in self._mutating:
            if self._selects_change(webhook, change):
                release_current_seat()
                change = change._replace(obj=await webhook.call(change))
        return change.obj

    async def validate(self, change: WriteAttributes) -> None:
        asked = [webhook.call(change) for webhook in self._validating if self._selects_change(webhook, change)]
        if asked:
            release_current_seat()
            for verdict in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(verdict, BaseException):
                    raise verdict

    def _selects_change(self, webhook: Webhook, change: WriteAttributes) -> bool:
        configuration = webhook.configuration
        if (change.operation, change.resource) not in configuration.concerns:
            return False
        versions = [obj.metadata for obj in (change.obj, change.old) if obj is not None]
        if not any(configuration.objects.matches(metadata.labels) for metadata in versions):
            return False
        if change.resource is NAMESPACES:
            return configuration.namespaces.matches(versions[0].labels)
        if not change.resource.namespaced:
            return True
        entry = self._namespaces.get(NAMESPACES.key("", versions[0].namespace))
        return configuration.namespaces.matches(entry.obj.metadata.labels if entry is not None else {})


@dataclass(frozen=True, slots=True)
class WebhookConfiguration:
    name: str
    address: str
    """The address as host:port."""
    concerns: frozenset[Concern]
    """The operations and resources for which the webhook is called."""
    mutating: bool = False
    tls: bool = False
    ca: Path | None = None
    """The CA file of the webhook; None for the CA of the server."""
    namespaces: LabelSelector = EVERY
    objects: LabelSelector = EVERY
    ignore_failures: bool = False
    timeout: int = TIMEOUT
    """The timeout in seconds."""
    dry_run: bool = True
    """True if the webhook can be called for dry runs."""


def parse_configuration(document: str, folder: Path = Path()) -> tuple[WebhookConfiguration, ...]:
    """Return the webhooks in the order of calls. Relative file names are relative to `folder`. Raises ConfigurationError."""
    try:
        raws = documents.plain(document)
    except documents.DocumentError as error:
        raise ConfigurationError(f"line {error.line}: {error}") from None
    parsed: list[WebhookConfiguration] = []
    for number, raw in enumerate(raws, 1):
        where = f"document {number}: " if len(raws) > 1 else ""
        try:
            parsed += _parse_document(raw, folder)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}{error}") from None
    return tuple(parsed)


def _parse_document(raw: Any, folder: Path) -> Sequence[WebhookConfiguration]:
    top = parse_fields(raw, "", ("apiVersion", "kind", "metadata", "webhooks"))
    if top.get("apiVersion") != API_VERSION or top.get("kind") not in (MUTATING, VALIDATING):
        raise ConfigurationError(f"expected apiVersion {API_VERSION} and kind {MUTATING} or {VALIDATING}")
    webhooks = [
        _parse_webhook(item, f"webhooks[{index}]", top["kind"] == MUTATING, folder)
        for index, item in enumerate(parse_list(top.get("webhooks"), "webhooks"))
    ]
    for index, each in enumerate(webhooks):
        if each.name in (other.name for other in webhooks[:index]):
            raise ConfigurationError(f'webhooks[{index}].name: Duplicate value: "{each.name}"')
    return webhooks


def _parse_webhook(raw: Any, path: str, mutating: bool, folder: Path) -> WebhookConfiguration:
    given = parse_fields(raw, path, _FIELDS)
    name = parse_text(given.get("name"), f"{path}.name")
    if problems := names.dns_subdomain(name):
        raise ConfigurationError(f"{path}.name: {problems[0]}")
    if len(name.split(".")) < 3:
        raise ConfigurationError(f"{path}.name: should be a domain with at least three segments separated by dots")
    client = parse_fields(given.get("clientConfig"), f"{path}.clientConfig", ("url", "caFile"))
    tls, address = _parse_url(client.get("url"), f"{path}.clientConfig.url")
    rules = parse_list(given.get("rules"), f"{path}.rules")
    return WebhookConfiguration(
        name=name,
        address=address,
        concerns=frozenset(concern for at, rule in enumerate(rules) for concern in _parse_rule(rule, f"{path}.rules[{at}]")),
        mutating=mutating,
        tls=tls,
        ca=_parse_file(client["caFile"], f"{path}.clientConfig.caFile", tls, folder) if "caFile" in client else None,
        namespaces=_parse_selector(given.get("namespaceSelector", {}), f"{path}.namespaceSelector"),
        objects=_parse_selector(given.get("objectSelector", {}), f"{path}.objectSelector"),
        ignore_failures=_parse_choice(given.get("failurePolicy", "Fail"), f"{path}.failurePolicy", ("Fail", "Ignore"))
        == "Ignore",
        timeout=_parse_timeout(given.get("timeoutSeconds", TIMEOUT), f"{path}.timeoutSeconds"),
        dry_run=_parse_choice(given.get("sideEffects"), f"{path}.sideEffects", _SIDE_EFFECTS) in _NO_EFFECTS,
    )


def _parse_url(raw: Any, path: str) -> tuple[bool, str]:
    """Parse a URL. Return whether it uses TLS, and host:port."""
    scheme, _, address = parse_text(raw, path).partition("://")
    try:
        if scheme not in ("grpc", "grpcs"):
            raise ValueError
        parse_address(address)
    except ValueError:
        raise ConfigurationError(f"{path}: expected grpc://host:port or grpcs://host:port, got {raw}") from None
    return scheme == "grpcs", address


def _parse_file(raw: Any, path: str, tls: bool, folder: Path) -> Path:
    file = folder / parse_text(raw, path)
    if not tls:
        raise ConfigurationError(f"{path}: requires a url that begins with grpcs://")
    if not file.is_file():
        raise ConfigurationError(f"{path}: file {file} does not exist")
    return file


def _parse_rule(raw: Any, path: str) -> Sequence[Concern]:
    given = parse_fields(raw, path, _RULE_FIELDS)
    operations = _parse_names_or_wildcard(given.get("operations"), f"{path}.operations", (*(name for name, _ in _WHOLE), "*"))
    groups = _parse_names_or_wildcard(given.get("apiGroups"), f"{path}.apiGroups")
    versions = _parse_names_or_wildcard(given.get("apiVersions"), f"{path}.apiVersions")
    if "" in versions:
        raise ConfigurationError(f"{path}.apiVersions[{versions.index('')}]: must not be empty")
    scope = _parse_choice(given.get("scope", "*"), f"{path}.scope", ("Cluster", "Namespaced", "*"))
    parsed: list[Concern] = []
    resources = _parse_names(given.get("resources"), f"{path}.resources")
    _require_distinct(resources, f"{path}.resources")
    for at, each in enumerate(resources):
        plural, _, subresource = each.partition("/")
        if (plural != "*" and plural not in (known.plural for known in ALL)) or subresource not in _subresources(plural):
            where = f"{path}.resources[{at}]"
            raise ConfigurationError(f"{where}: unknown resource {each}; examples are pods, pods/status, pods/*, */* and *")
        parsed += [
            (operation, resource)
            for resource in ALL
            if plural in ("*", resource.plural)
            and _matches(resource.group, groups)
            and _matches(resource.api_version.rpartition("/")[2], versions)
            and scope in ("*", "Namespaced" if resource.namespaced else "Cluster")
            for operation in _operations_of_rule(operations, subresource)
        ]
    return parsed


def _operations_of_rule(operations: Sequence[str], subresource: str) -> Sequence[AdmissionOperation]:
    """Return the operations of a rule. `pods` means only the objects, `pods/status` only the subresource, and `pods/*` the
    objects and all subresources."""
    parsed: list[AdmissionOperation] = []
    if subresource in ("", "*"):
        parsed += [operation for name, operation in _WHOLE if _matches(name, operations)]
    if _matches("UPDATE", operations):
        parsed += [operation for operation, name in _SUBRESOURCES.items() if subresource in ("*", name)]
    return parsed


def _subresources(plural: str) -> Sequence[str]:
    """Return the subresources that a rule can name."""
    special = [name for name, of in ((RESIZE, PODS), (FINALIZE, NAMESPACES)) if plural in ("*", of.plural)]
    return ("", "*", STATUS, *special)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return "*" in patterns or name in patterns


def _parse_names(raw: Any, path: str, allowed: Sequence[str] = ()) -> Sequence[str]:
    """Return a list of at least one string. Raises ConfigurationError."""
    parsed: list[str] = parse_list(raw, path)
    for index, each in enumerate(parsed):
        if not isinstance(each, str) or (allowed and each not in allowed):
            raise ConfigurationError(f"{path}[{index}]: expected {' or '.join(allowed) or 'text'}")
    if not parsed:
        raise ConfigurationError(f"{path}: expected at least one")
    return parsed


def _parse_names_or_wildcard(raw: Any, path: str, allowed: Sequence[str] = ()) -> Sequence[str]:
    parsed = _parse_names(raw, path, allowed)
    if "*" in parsed and len(parsed) > 1:
        raise ConfigurationError(f"{path}: if '*' is present, must not specify others")
    return parsed


def _require_distinct(resources: Sequence[str], path: str) -> None:
    """Raise ConfigurationError if a resource is already included in a wildcard. As in Kubernetes, a subresource can be listed
    before a wildcard that includes it."""
    if "*/*" in resources and len(resources) > 1:
        raise ConfigurationError(f"{path}: if '*/*' is present, must not specify other resources")
    for at, each in enumerate(resources):
        plural, slash, subresource = each.partition("/")
        wider, among = ((f"{plural}/*", f"*/{subresource}"), resources[:at]) if slash else (("*",), resources)
        for wild in wider:
            if wild != each and wild in among:
                raise ConfigurationError(f"{path}[{at}]: if '{wild}' is present, must not specify {each}")


def _parse_choice(raw: Any, path: str, allowed: Sequence[str]) -> str:
    if raw not in allowed:
        raise ConfigurationError(f"{path}: expected {', '.join(allowed[:-1])} or {allowed[-1]}")
    return str(raw)


def _parse_timeout(raw: Any, path: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not 1 <= raw <= MAX_TIMEOUT:
        raise ConfigurationError(f"{path}: the timeout value must be between 1 and {MAX_TIMEOUT} seconds")
    return raw


def _parse_selector(raw: Any, path: str) -> LabelSelector:
    try:
        message = from_dict(SelectorMessage, raw)
    except CodecError as error:
        wrong = [Violation(problem.field, problem.message) for problem in error.problems]
        raise ConfigurationError(
            "; ".join(f"{path}.{violation}" if violation.field else f"{path}: {violation}" for violation in wrong)
        ) from None
    problems: list[Violation] = []
    validate_selector(message, path, problems)
    if problems:
        raise ConfigurationError("; ".join(map(str, problems)))
    return from_message(message)
