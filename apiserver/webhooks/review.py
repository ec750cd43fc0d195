"""AdmissionReviews: requests, responses, and the JSON form of objects. Pure.

Objects have the form of Kubernetes' JSON (pinnace.api.json_codec) in the API version of the webhook's rule. A new object has no
uid and no creationTimestamp before it is validated, and no name if the server generates one.

Source: pkg/admission/plugin/webhook, request/admissionreview.go and errors/statuserror.go, of k8s.io/apiserver 1.36.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from pinnace.api.codec import Problem, decode_revision, decode_valid_part
from pinnace.api.conversion import Conversion, conversion_between
from pinnace.api.customobjects import dump_canonical
from pinnace.api.go_json import go_syntax_message
from pinnace.api.json_codec import to_json, with_type
from pinnace.api.ownership import show_owners
from pinnace.api.patch import apply_json_patch, check_operations
from pinnace.api.resources import CustomResource
from pinnace.api.status import STATUS_CODE, STATUS_DETAILS, STATUS_REASON, Code, Refusal
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.registry.admission import CONNECT, CREATE, DELETE, UPDATE, WriteAttributes
from pinnace.apiserver.webhooks.matching import name_of, namespace_of

REVIEW_GROUP = "admission.k8s.io"
REVIEW_KIND = "AdmissionReview"
JSON_PATCH = "JSONPatch"
META_VERSION = "meta.k8s.io/v1"
MAX_WARNINGS = 20
MAX_AUDIT_ANNOTATIONS = 50
"""Of one response."""
MAX_EXPLAINED = 64 << 10
"""Maximum bytes of invalid JSON for which the message is that of Go's parser: it takes time."""
MAX_CAUSES = 3
"""Causes of a denial by policies."""
MAX_TEXT = 4000
"""Maximum characters of a message, and of the details of a status, in a denial. They are sent in trailers."""
_OPTIONS = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}
_NOT_SHOWN = ("force", "defaultManager", "defaultFieldValidation")
"""Fields of PatchOptions that UpdateOptions do not have, and fields that the client has not sent."""
_REFUSAL_CODES = {401: Code.PERMISSION_DENIED, 403: Code.PERMISSION_DENIED, 429: Code.RESOURCE_EXHAUSTED}
_BAD_REQUEST, _INTERNAL_ERROR = 400, 500


class InvalidResponse(ValueError):
    """The response cannot be used. `prefix`: of the text in the error of the call, as in Kubernetes."""

    prefix = "received invalid webhook response: "


class UndecodableResponse(InvalidResponse):
    """The body of the response is not an AdmissionReview of the requested version."""

    prefix = "failed to call webhook: "


class UnusablePatch(InvalidResponse):
    """The patch of a valid response."""

    prefix = ""


@dataclass(frozen=True, slots=True)
class ReviewResponse:
    """The verdict of a webhook."""

    allowed: bool
    code: int = 0
    """The HTTP status code of a denial; 0 if the webhook sets none."""
    reason: str = ""
    message: str = ""
    details: Mapping[str, Any] | None = None
    patch: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    audit_annotations: Mapping[str, str] = field(default_factory=dict)


class ReviewForms:
    """The JSON forms of one write by API version. They are computed when they are used. `hides_identity`: omit what the server
    sets only after the mutating webhooks."""

    def __init__(self, change: WriteAttributes, *, hides_identity: bool = False) -> None:
        self._change = change
        self._hides_identity = hides_identity and change.operation == CREATE and not change.subresource
        self._objects: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}
        self._parsed: dict[bytes, Any] = {}

    def obj(self, api_version: str) -> bytes:
        """Return the new object; null if there is none."""
        if api_version not in self._objects:
            obj = self._change.obj
            if self._hides_identity and obj is not None:
                obj = _without_identity(obj)
            elif obj is not None and self._change.operation == UPDATE:
                obj = _with_resource_version(obj, self._change.old)
            self._objects[api_version] = object_json(self._change, obj, api_version)
        return self._objects[api_version]

    def old(self, api_version: str) -> bytes:
        """Return the present object; null if there is none."""
        if api_version not in self._old:
            self._old[api_version] = object_json(self._change, self._change.old, api_version)
        return self._old[api_version]

    def parse(self, text: bytes) -> Any:
        """Return the JSON of one of the objects as data, which must not be changed."""
        if text not in self._parsed:
            self._parsed[text] = json.loads(text)
        return self._parsed[text]


def object_json(change: WriteAttributes, obj: Any, api_version: str) -> bytes:
    """Return the JSON of an object of a write; null for None."""
    if obj is None:
        return b"null"
    if isinstance(obj, Mapping):
        return json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode()
    own_version, own_kind = change.kind
    if own_kind:
        return with_type(own_version, own_kind, to_json(obj))
    if obj.metadata.ownership:
        shown = type(obj)()
        shown.CopyFrom(obj)
        show_owners(change.resource, shown)
        obj = shown
    converting = review_conversion(change, api_version)
    if isinstance(converting.served, CustomResource) and converting.served.schema is not None:
        return dump_canonical(converting.served.schema.to_served(obj))
    return with_type(converting.served.api_version, converting.served.kind, to_json(converting.to_served(obj)))


def review_conversion(change: WriteAttributes, api_version: str) -> Conversion:
    """Return the conversion between the stored form of the objects and an API version of their resource."""
    result = conversion_between(change.resource, api_version)
    assert result is not None
    return result


def request_version(change: WriteAttributes) -> str:
    return change.request.api_version or change.resource.api_version


def _without_identity(obj: Any) -> Any:
    copy = type(obj)()
    copy.CopyFrom(obj)
    metadata = copy.metadata
    for name in ("uid", "creationTimestamp", "generation"):
        metadata.ClearField(name)
    if metadata.generateName and metadata.name.startswith(metadata.generateName):
        metadata.ClearField("name")
    return copy


def _with_resource_version(obj: Any, old: Any) -> Any:
    if not hasattr(obj, "metadata") or obj.metadata.resourceVersion or old is None:
        return obj
    copy = type(obj)()
    copy.CopyFrom(obj)
    copy.metadata.resourceVersion = old.metadata.resourceVersion
    return copy


def review_attributes(change: WriteAttributes, uid: str, api_version: str, *, mutating: bool) -> dict[str, Any]:
    """Return the fields of an AdmissionRequest in the API version of a rule, without the objects. Policies use it as the
    variable `request`."""
    kind, request_kind = _review_kind(change, api_version), _review_kind(change, request_version(change))
    user = change.request.user
    name = name_of(change)
    if mutating and change.operation == CREATE and not change.subresource and change.obj is not None:
        name = _without_identity(change.obj).metadata.name
    attributes: dict[str, Any] = {
        "uid": uid,
        "kind": kind,
        "resource": _review_resource(change, api_version),
        "subResource": change.subresource,
        "requestKind": request_kind,
        "requestResource": _review_resource(change, request_version(change)),
        "requestSubResource": change.subresource,
        "name": name,
        "namespace": namespace_of(change),
        "operation": change.operation,
        "userInfo": _user_info(user),
        "dryRun": change.request.dry_run,
        "options": request_options(change),
    }
    return {key: value for key, value in attributes.items() if value != ""}


def _user_info(user: User) -> dict[str, Any]:
    extra = {name: list(values) for name, values in user.extra}
    info = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {name: value for name, value in info.items() if value}


def _review_kind(change: WriteAttributes, api_version: str) -> dict[str, str]:
    own_version, own_kind = change.kind
    group, _, version = (own_version or api_version).rpartition("/")
    return {"group": group, "version": version, "kind": own_kind or change.resource.kind}


def _review_resource(change: WriteAttributes, api_version: str) -> dict[str, str]:
    group, _, version = api_version.rpartition("/")
    return {"group": group, "version": version, "resource": change.resource.plural}


def request_options(change: WriteAttributes) -> dict[str, Any] | None:
    """Return the options of the request. A patch has UpdateOptions, as in Kubernetes."""
    if change.operation == CONNECT:
        return None
    head = {"kind": _OPTIONS[change.operation], "apiVersion": META_VERSION}
    options: Message | None = change.options if change.options is not None else change.request.options
    form: dict[str, Any] = json.loads(to_json(options)) if options is not None else {}
    return head | {name: value for name, value in form.items() if name not in _NOT_SHOWN}


def build_review(
    change: WriteAttributes, forms: ReviewForms, uid: str, api_version: str, review_version: str, *, mutating: bool
) -> bytes:
    """Return an AdmissionReview with the request. `review_version`: v1 or v1beta1."""
    attributes = review_attributes(change, uid, api_version, mutating=mutating)
    head = json.dumps(attributes, separators=(",", ":"), ensure_ascii=False).encode()
    objects = b',"object":' + forms.obj(api_version) + b',"oldObject":' + forms.old(api_version)
    kind = f'{{"kind":"{REVIEW_KIND}","apiVersion":"{REVIEW_GROUP}/{review_version}","request":'.encode()
    return kind + head[:-1] + objects + b"}}"


def parse_review(body: bytes, uid: str, review_version: str, *, mutating: bool) -> ReviewResponse:
    """Read the response of a webhook. Raises InvalidResponse."""
    review = _decode_review(body)
    group_version, kind = str(review.get("apiVersion") or ""), str(review.get("kind") or "")
    version = group_version.removeprefix(f"{REVIEW_GROUP}/")
    if (kind or REVIEW_KIND) != REVIEW_KIND or (group_version and version not in ("v1", "v1beta1")):
        problem = f'no kind "{kind[:128]}" is registered for version "{group_version[:128]}"'
        raise UndecodableResponse(f"{problem} in scheme of {REVIEW_GROUP}")
    if group_version and version != review_version:
        problem = f"({version}.{REVIEW_KIND}) to ({review_version}.{REVIEW_KIND}): unknown conversion"
        raise UndecodableResponse(f"converting {problem}")
    response = review.get("response")
    if response is None:
        raise InvalidResponse("webhook response was absent")
    if not isinstance(response, dict):
        raise UndecodableResponse("json: cannot unmarshal response into Go struct field AdmissionReview.response")
    if review_version == "v1":
        if response.get("uid") != uid:
            raise InvalidResponse(f'expected response.uid="{uid}", got {json.dumps(str(response.get("uid") or "")[:64])}')
        if not group_version or not kind:
            expected = f"{REVIEW_GROUP}/v1, Kind={REVIEW_KIND}"
            raise InvalidResponse(f"expected webhook response of {expected}, got {group_version or '/'}, Kind={kind}")
    return _read_response(response, review_version, mutating=mutating)


def _decode_review(body: bytes) -> dict[str, Any]:
    """Raises UndecodableResponse."""
    if not body:
        raise UndecodableResponse("0-length response with status code: 200 and content type: application/json")
    try:
        review = json.loads(body)
    except json.JSONDecodeError as error:
        problem = go_syntax_message(error) if len(body) <= MAX_EXPLAINED else str(error)
        raise UndecodableResponse(f"couldn't get version/kind; json parse error: {problem}") from None
    except (ValueError, RecursionError) as error:
        raise UndecodableResponse(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(review, dict):
        problem = "json: cannot unmarshal the response into Go value of type struct"
        raise UndecodableResponse(f"couldn't get version/kind; json parse error: {problem}")
    return review


def _read_response(response: Mapping[str, Any], review_version: str, *, mutating: bool) -> ReviewResponse:
    patch, patch_type = response.get("patch") or "", response.get("patchType")
    if not mutating:
        if review_version == "v1":
            if patch:
                raise InvalidResponse("validating webhook may not return response.patch")
            if patch_type is not None:
                raise InvalidResponse("validating webhook may not return response.patchType")
        patch = ""
    elif review_version == "v1":
        if patch and patch_type is None:
            raise InvalidResponse("webhook returned response.patch but not response.patchType")
        if not patch and patch_type is not None:
            raise InvalidResponse("webhook returned response.patchType but not response.patch")
        if patch_type == "":
            raise InvalidResponse('webhook returned invalid response.patchType of ""')
    status, allowed = response.get("status") or {}, response.get("allowed", False)
    if not isinstance(status, dict) or not isinstance(allowed, bool):
        raise UndecodableResponse("response.allowed and response.status have wrong types")
    code, details = status.get("code"), status.get("details")
    if allowed and patch and review_version == "v1" and patch_type != JSON_PATCH:
        raise UnusablePatch(f'unsupported patch type "{str(patch_type)[:64]}"')
    return ReviewResponse(
        allowed,
        code if isinstance(code, int) and _BAD_REQUEST <= code <= 599 else 0,
        _text_or_empty(status.get("reason")),
        _text_or_empty(status.get("message")),
        details if isinstance(details, dict) else None,
        _read_patch(patch) if allowed and patch else (),
        [
            _text_or_empty(warning)
            for warning in _list_or_empty(response.get("warnings"))[:MAX_WARNINGS]
            if isinstance(warning, str)
        ],
        _read_annotations(response.get("auditAnnotations")),
    )


def _text_or_empty(value: object) -> str:
    """Return a text that can be sent in a trailer; "" for other values."""
    if not isinstance(value, str):
        return ""
    return value[:MAX_TEXT].encode(errors="replace").decode()


def _list_or_empty(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_annotations(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    pairs = list(value.items())[:MAX_AUDIT_ANNOTATIONS]
    return {key[:253]: _text_or_empty(text) for key, text in pairs if isinstance(text, str)}


def _read_patch(encoded: object) -> Sequence[Mapping[str, Any]]:
    """Read a JSON patch in base64. Raises InvalidResponse."""
    try:
        if not isinstance(encoded, str):
            raise ValueError("the patch is not a string")
        decoded = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UndecodableResponse(f"illegal base64 data: {error}") from None
    try:
        return check_operations(json.loads(decoded))
    except json.JSONDecodeError as error:
        problem = go_syntax_message(error) if len(decoded) <= MAX_EXPLAINED else str(error)
    except (ValueError, RecursionError) as error:
        problem = str(error)
    raise UnusablePatch(f"received undecodable patch in webhook response: {problem}")


def apply_patch(change: WriteAttributes, form: bytes, patch: Sequence[Mapping[str, Any]], api_version: str) -> Any:
    """Return the object of a write after a JSON patch of its JSON form. Unknown fields of the result are dropped, as in
    Kubernetes. Raises ValueError."""
    before = json.loads(form)
    try:
        after = apply_json_patch(before, patch)
    except RecursionError:
        raise ValueError("the patch is nested too deeply") from None
    return read_object(change, before, after, api_version)


def read_object(change: WriteAttributes, before: Any, after: Any, api_version: str) -> Any:
    """Return the object of a write with another JSON form. `before`: its present form. Raises ValueError."""
    if isinstance(change.obj, Mapping):
        return after
    if not isinstance(after, Mapping):
        raise ValueError("the patched object is not a JSON object")
    if change.kind[1]:
        fields = {name: value for name, value in after.items() if name not in ("kind", "apiVersion")}
        request, problems = decode_valid_part(type(change.obj), fields)
        if wrong := [str(problem) for problem in problems if not problem.unknown]:
            raise ValueError("; ".join(wrong))
        return request
    served = review_conversion(change, api_version)
    shown = served.to_served(change.obj)
    new = served.to_stored(decode_revision(served.served, shown, before, after, _is_unknown), change.obj)
    return restore_identity(new, change.obj, change.operation)


def _is_unknown(problem: Problem) -> bool:
    return problem.unknown


def restore_identity(new: Any, obj: Any, operation: str) -> Any:
    """Copy what the JSON form of a new object hides (see `ReviewForms`)."""
    if operation == CREATE:
        metadata, before = new.metadata, obj.metadata
        metadata.uid, metadata.generation = before.uid, before.generation
        metadata.creationTimestamp.CopyFrom(before.creationTimestamp)
        metadata.name = metadata.name or before.name
    return new


def webhook_denial(webhook: str, response: ReviewResponse) -> Refusal:
    """Return the refusal of a write that a webhook denies, with Kubernetes' message. Without a status code it is 400."""
    denied = f'admission webhook "{webhook}" denied the request'
    explanation = response.message or response.reason
    message = f"{denied}: {explanation}" if explanation else f"{denied} without explanation"
    return http_refusal(response.code or _BAD_REQUEST, response.reason, message, response.details)


def qualified_name(change: WriteAttributes) -> str:
    """Return the resource and the name of the object, for messages."""
    resource = change.resource
    qualified = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f'{qualified} "{name_of(change)}"'


def status_details(change: WriteAttributes, *causes: str) -> dict[str, Any]:
    """Return the details of a status about the object, with the messages of causes."""
    group = {"group": change.resource.group} if change.resource.group else {}
    listed = [{"message": cause[: MAX_TEXT // 4]} for cause in causes[:MAX_CAUSES]]
    return {"name": name_of(change)} | group | {"kind": change.resource.plural, "causes": listed}


def http_refusal(code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> Refusal:
    """Return a refusal that the gateway answers with this HTTP status. Long details are omitted."""
    metadata = [(STATUS_CODE, str(code)), (STATUS_REASON, reason)]
    if details:
        text = json.dumps(details, separators=(",", ":"))
        if len(text) <= MAX_TEXT:
            metadata.append((STATUS_DETAILS, text))
    default = Code.INTERNAL if code >= _INTERNAL_ERROR else Code.INVALID_ARGUMENT
    return Refusal(_REFUSAL_CODES.get(code, default), reason or "AdmissionDenied", message[:MAX_TEXT], metadata=tuple(metadata))


def internal_error(problem: str) -> Refusal:
    """Return Kubernetes' InternalError."""
    details = {"causes": [{"message": problem[: MAX_TEXT // 2]}]}
    return http_refusal(_INTERNAL_ERROR, "InternalError", f"Internal error occurred: {problem}", details)
