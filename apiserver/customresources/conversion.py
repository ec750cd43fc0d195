"""The conversion of custom objects by the webhook of their definition (conversion strategy Webhook).

    object in version a --prune, defaults of a--> ConversionReview --> webhook --> checks --prune by b--> object in version b

Objects are converted where Kubernetes converts them: when they are read in another version than the stored one, and when they
are written in another version than the storage version. The webhook can change labels and annotations; all other metadata is
restored.

* A list is converted in reviews of many objects (MAX_OBJECTS, MAX_REQUEST).
* A version of an object that was converted is not converted again, for any reader, while it is among the recent ones
  (MAX_CACHED). Readers that need it at the same time share the call.
* A call ends within TIMEOUT, and calls of one webhook do not delay other webhooks (pinnace.apiserver.webhooks.client). A call
  that waits holds no seats of flow control.
* A failed conversion fails the read or write that needs it, with Kubernetes' message.

Source: pkg/apiserver/conversion of k8s.io/apiextensions-apiserver 1.36 (webhook_converter.go), and its messages.
"""

import asyncio
import json
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pinnace.api.customobjects import write_content
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.names import new_uid
from pinnace.api.status import Code, Refusal, Violation
from pinnace.apiextensions.kinds import CustomKind, CustomVersion
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.control import release_current_seat
from pinnace.apiserver.registry.large import LARGE
from pinnace.apiserver.registry.validation.fields import validate_annotations, validate_labels
from pinnace.apiserver.webhooks.client import TooManyCalls, WebhookCallError, WebhookClient, WebhookTarget
from pinnace.apiserver.webhooks.review import http_refusal

TIMEOUT = 30.0
"""Seconds of a call, as in Kubernetes."""
MAX_OBJECTS = 500
"""Objects of a review."""
MAX_REQUEST = 512 << 10
"""Bytes of the objects of a review, if it has several."""
MAX_CACHED = 16 << 20
"""Bytes of all converted objects in the cache."""
RETRY_AFTER = 1.0
"""Seconds after which a client can retry a request that a full queue refused."""
_GROUP, _KIND = "apiextensions.k8s.io", "ConversionReview"
_REVIEW_VERSIONS = ("v1", "v1beta1")
_IDENTITY = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))
"""The fields of the metadata that a conversion must keep, with their names in messages."""

R = TypeVar("R")
_Key = tuple[str, str, str, str, str]


class _PendingConversion(NamedTuple):
    """An object to convert, and where the result is set. `key`: None if it cannot be cached."""

    key: _Key | None
    obj: CustomObject
    result: "asyncio.Future[CustomObject]"


class ConversionWebhooks:
    """Converts the objects of all kinds."""

    def __init__(self, client: WebhookClient, rng: random.Random) -> None:
        self._client = client
        self._rng = rng
        self._converted: OrderedDict[_Key, CustomObject] = OrderedDict()
        self._size = 0
        self._pending: dict[_Key, asyncio.Future[CustomObject]] = {}
        self._calls = set[asyncio.Task[None]]()

    async def convert(self, objs: Sequence[CustomObject], version: CustomVersion) -> list[CustomObject]:
        """Return the objects in a version, in order. The results are shared and must not be changed. Raises Rejected."""
        results, pending, new = list(objs), dict[int, asyncio.Future[CustomObject]](), list[_PendingConversion]()
        for index, obj in enumerate(objs):
            if obj.apiVersion in ("", version.api_version):
                continue
            key = _conversion_cache_key(obj, version)
            if key is not None and (converted := self._converted.get(key)) is not None:
                self._converted.move_to_end(key)
                results[index] = converted
                continue
            future = self._pending.get(key) if key is not None else None
            if future is None:
                future = asyncio.get_running_loop().create_future()
                future.add_done_callback(_mark_exception_retrieved)
                new.append(_PendingConversion(key, obj, future))
                if key is not None:
                    self._pending[key] = future
            pending[index] = future
        for portion in _split_by_version(new):
            call = asyncio.create_task(self._convert_batch(portion, version))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        if pending:
            release_current_seat()
            await asyncio.wait(set(pending.values()))
        for index, future in pending.items():
            results[index] = future.result()
        return results

    async def _convert_batch(self, portion: Sequence[_PendingConversion], version: CustomVersion) -> None:
        """Convert objects by one call. Several readers may wait for them, so a reader that leaves does not end the call."""
        try:
            converted = await self._call_webhook([work.obj for work in portion], version)
        except BaseException as error:
            refusal = error.refusal if isinstance(error, Rejected) else http_refusal(500, "", f"conversion failed: {error!r}")
            for work in portion:
                work.result.set_exception(Rejected(refusal))
            if not isinstance(error, Exception):
                raise
        else:
            for work, obj in zip(portion, converted, strict=True):
                work.result.set_result(obj)
                if work.key is not None:
                    self._cache_converted(work.key, obj)
        finally:
            for work in portion:
                if work.key is not None:
                    self._pending.pop(work.key, None)

    def _cache_converted(self, key: _Key, obj: CustomObject) -> None:
        self._converted[key] = obj
        self._size += len(obj.content)
        while self._size > MAX_CACHED:
            self._size -= len(self._converted.popitem(last=False)[1].content)

    async def _call_webhook(self, objs: Sequence[CustomObject], version: CustomVersion) -> list[CustomObject]:
        """Raises Rejected."""
        kind, uid = version.kind, new_uid(self._rng)
        source = f"{objs[0].apiVersion}, Kind={objs[0].kind}"
        is_large = sum(len(obj.content) for obj in objs) > LARGE
        webhook = kind.definition.spec.conversion.webhook
        review_version = next((name for name in webhook.conversionReviewVersions if name in _REVIEW_VERSIONS), "")
        if not review_version:
            raise Rejected(http_refusal(500, "", "no supported conversion review versions"))
        try:
            body = await _run_in_thread_if_large(
                is_large, lambda: _encode_conversion_review(objs, version, uid, review_version)
            )
            response = await self._client.post(_webhook_target(kind), body, TIMEOUT)
            is_large = is_large or len(response) > LARGE
            return await _run_in_thread_if_large(
                is_large, lambda: _decode_conversion_review(response, objs, version, uid, review_version)
            )
        except TooManyCalls as crowd:
            message = f"too many requests, please try again later: {crowd} are waiting for the conversion webhook for {source}"
            raise Rejected(Refusal(Code.UNAVAILABLE, "TooManyRequests", message, retry_after=RETRY_AFTER)) from None
        except WebhookCallError as error:
            raise Rejected(http_refusal(500, "", f"conversion webhook for {source} failed: {error}")) from None
        except InvalidConversion as error:
            raise Rejected(http_refusal(500, "", f"conversion webhook for {source} {error}")) from None


class InvalidConversion(Exception):
    """The webhook has not converted the objects. The text continues "conversion webhook for ..."."""


def _mark_exception_retrieved(future: "asyncio.Future[CustomObject]") -> None:
    """Mark an error as known: its readers may have left."""
    if not future.cancelled():
        future.exception()


def _conversion_cache_key(obj: CustomObject, version: CustomVersion) -> _Key | None:
    """Return the key of a stored version of an object; None if the object is not stored."""
    metadata, definition = obj.metadata, version.kind.definition.metadata
    if not metadata.resourceVersion or not metadata.uid:
        return None
    return metadata.uid, metadata.resourceVersion, obj.apiVersion, version.api_version, definition.resourceVersion


def _split_by_version(works: Sequence[_PendingConversion]) -> Iterator[Sequence[_PendingConversion]]:
    """Yield the objects of each call: all of one version, and not too many."""
    portion, size = list[_PendingConversion](), 0
    for work in works:
        length = work.obj.ByteSize()
        is_full = len(portion) >= MAX_OBJECTS or size + length > MAX_REQUEST
        if portion and (is_full or work.obj.apiVersion != portion[0].obj.apiVersion):
            yield portion
            portion, size = [], 0
        portion.append(work)
        size += length
    if portion:
        yield portion


def _webhook_target(kind: CustomKind) -> WebhookTarget:
    target = WebhookTarget.from_config(kind.definition.spec.conversion.webhook.clientConfig)
    return target if target.ca_bundle.strip() else WebhookTarget(target.url, b"", target.service)


async def _run_in_thread_if_large(is_large: bool, function: Callable[[], R]) -> R:
    """Call a function, in a thread if its arguments are large."""
    return await asyncio.to_thread(function) if is_large else function()


def _encode_conversion_review(objs: Sequence[CustomObject], version: CustomVersion, uid: str, review_version: str) -> bytes:
    sources = [version.kind.version_of(obj.apiVersion) for obj in objs]
    for obj, source in zip(objs, sources, strict=True):
        if source is None:
            group_version = obj.apiVersion
            message = f"request to convert CR from an invalid group/version: {group_version}"
            raise Rejected(http_refusal(500, "", message))
    forms = [source.normalized(obj) for obj, source in zip(objs, sources, strict=True) if source is not None]
    request = {"uid": uid, "desiredAPIVersion": version.api_version, "objects": forms}
    review = {"kind": _KIND, "apiVersion": f"{_GROUP}/{review_version}", "request": request}
    return json.dumps(review, separators=(",", ":"), ensure_ascii=False).encode()


def _decode_conversion_review(
    body: bytes, objs: Sequence[CustomObject], version: CustomVersion, uid: str, review_version: str
) -> list[CustomObject]:
    """Raises InvalidConversion."""
    try:
        forms = _converted_objects(json.loads(body), uid, review_version)
    except (ValueError, RecursionError) as error:
        raise InvalidConversion(f"failed: couldn't get version/kind; json parse error: {error}") from None
    if len(forms) != len(objs):
        raise InvalidConversion(f"returned {len(forms)} objects, expected {len(objs)}")
    is_single = len(objs) == 1
    pairs = zip(forms, objs, strict=True)
    return [_read_object(form, obj, version, index, is_single) for index, (form, obj) in enumerate(pairs)]


def _converted_objects(review: Any, uid: str, review_version: str) -> list[Any]:
    """Return the converted objects of a review. Raises InvalidConversion."""
    if not isinstance(review, dict):
        raise InvalidConversion("failed: couldn't get version/kind; json parse error: the response is not an object")
    response = review.get("response")
    if review_version == "v1":
        expected, found = f"{_GROUP}/v1, Kind={_KIND}", f"{review.get('apiVersion', '')}, Kind={review.get('kind', '')}"
        if found != expected:
            raise InvalidConversion(f"failed: expected webhook response of {expected}, got {found[:256]}")
    if not isinstance(response, dict):
        raise InvalidConversion("failed: no response provided")
    if review_version == "v1" and response.get("uid") != uid:
        raise InvalidConversion(f'failed: expected response.uid="{uid}", got {json.dumps(str(response.get("uid") or "")[:64])}')
    result = response.get("result")
    result = result if isinstance(result, dict) else {}
    status, message = result.get("status") or "", result.get("message")
    if status != "Success":
        if isinstance(message, str) and message:
            raise InvalidConversion(f"failed: {message}")
        raise InvalidConversion(f"failed: response.result.status was '{str(status)[:64]}', not 'Success'")
    forms = response.get("convertedObjects")
    return forms if isinstance(forms, list) else []


def _read_object(form: Any, obj: CustomObject, version: CustomVersion, index: int, is_single: bool) -> CustomObject:
    """Raises InvalidConversion."""
    where = f"returned invalid converted object at index {index}"
    if not isinstance(form, dict):
        raise InvalidConversion(f"{where}: it is not an object")
    first = "returned invalid object at index 0" if is_single else where
    if (found := form.get("apiVersion", "")) != version.api_version:
        raise InvalidConversion(f"{first}: invalid groupVersion (expected {version.api_version}, received {str(found)[:256]})")
    if (found := form.get("kind", "")) != obj.kind:
        raise InvalidConversion(f"{first}: invalid kind (expected {obj.kind}, received {str(found)[:256]})")
    metadata = form.get("metadata")
    for field, shown in _IDENTITY:
        before, after = getattr(obj.metadata, field), metadata.get(field) or "" if isinstance(metadata, dict) else ""
        if before != after:
            what = "returned invalid object" if is_single else where
            raise InvalidConversion(f"{what}: must have the same {shown}: {before} != {str(after)[:256]}")
    try:
        restored = _restore_metadata(metadata, obj.metadata)
    except InvalidConversion as error:
        what = "returned invalid metadata" if is_single else f"returned invalid metadata in object at index {index}"
        raise InvalidConversion(f"{what}: {error}") from None
    try:
        content = write_content(version.pruned(form))
    except ValueError as error:
        raise InvalidConversion(f"{where}: {error}") from None
    return CustomObject(metadata=restored, apiVersion=version.api_version, kind=obj.kind, content=content)


def _restore_metadata(converted: Any, original: ObjectMeta) -> ObjectMeta:
    """Return the original metadata with the labels and annotations of the converted object. Raises InvalidConversion."""
    if converted is None:
        raise InvalidConversion("missing metadata in converted object")
    restored = ObjectMeta()
    restored.CopyFrom(original)
    for field in ("labels", "annotations"):
        values, known = converted.get(field), getattr(original, field)
        getattr(restored, field).clear()
        if values is None:
            continue
        if not isinstance(values, Mapping):
            raise InvalidConversion(f"invalid metadata.{field} of type {type(values).__name__} in converted object")
        for key, value in values.items():
            if not isinstance(value, str):
                what = f"metadata.{field}[{key[:256]}] must be a string, but is {type(value).__name__} in converted object"
                raise InvalidConversion(what)
        if dict(known) != values:
            violations = list[Violation]()
            (validate_labels if field == "labels" else validate_annotations)(values, f"metadata.{field}", violations)
            if violations:
                raise InvalidConversion("; ".join(f"{violation.field}: {violation.message}" for violation in violations[:8]))
        getattr(restored, field).update(values)
    return restored
