"""Conversion of API server errors to Kubernetes' Status: code, reason, message and causes.

    NOT_FOUND            404 NotFound             PERMISSION_DENIED    403 Forbidden
    ALREADY_EXISTS       409 AlreadyExists        RESOURCE_EXHAUSTED   429 TooManyRequests
    ABORTED              409 Conflict             UNAVAILABLE          503 ServiceUnavailable, 504 Timeout
    INVALID_ARGUMENT     422 Invalid, 400 BadRequest
    OUT_OF_RANGE         410 Expired

Source: https://github.com/kubernetes/apimachinery/blob/master/pkg/api/errors/errors.go
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api.status import (
    APPLY_CONFLICT,
    DEFINITION_TERMINATING,
    INVALID_KIND,
    PRECONDITION_KIND,
    STATUS_CODE,
    STATUS_DETAILS,
    STATUS_REASON,
    TOO_LARGE,
    UNMERGEABLE,
    UNTYPED,
    Code,
    Refusal,
    Violation,
    conflict_message,
)
from pinnace.client.errors import ApiError, OutcomeUnknown, Timeout
from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.http import ApiStatus

RETRY_AFTER = 1
"""Seconds that a client must wait before it retries a request that had no effect."""
TOO_LARGE_VERSION = "ResourceVersionTooLarge"
META_GROUP = "meta.k8s.io"
_CAUSES = (
    ("Required value", "FieldValueRequired"),
    ("Invalid value", "FieldValueInvalid"),
    ("Unsupported value", "FieldValueNotSupported"),
    ("Duplicate value", "FieldValueDuplicate"),
    ("Forbidden", "FieldValueForbidden"),
    ("Too long", "FieldValueTooLong"),
    ("Too many", "FieldValueTooMany"),
    ("Not found", "FieldValueNotFound"),
)
"""The prefix of a violation, and the reason of its cause."""
_UNKNOWN_FIELD = re.compile(r'field selector: unknown field "([^"]*)"')
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_REQUIRED = ("required", "must be given", "is missing")


def convert_error(error: ApiError, resource: ApiResource | None = None, name: str = "") -> ApiStatus:
    """Convert an error. `resource` and `name`: the object of the request."""
    refusal = error.refusal
    if isinstance(error, OutcomeUnknown):
        return ApiStatus(504, "Timeout", f"the outcome of the request is unknown: {refusal.message}")
    if isinstance(error, Timeout) or refusal.code is Code.DEADLINE_EXCEEDED:
        return ApiStatus(504, "Timeout", f"Timeout: {refusal.message}", retry_after=RETRY_AFTER)
    details = _status_details(resource, name)
    if STATUS_CODE in (chosen := dict(refusal.metadata)):
        return ApiStatus(int(chosen[STATUS_CODE]), chosen.get(STATUS_REASON, ""), refusal.message, _read_details(chosen))
    match refusal.code:
        case Code.NOT_FOUND if refusal.reason == "NamespaceNotFound":
            return _namespace_not_found(refusal)
        case Code.NOT_FOUND:
            return ApiStatus(404, "NotFound", _name_object("{} not found", refusal, resource, name), details)
        case Code.ALREADY_EXISTS:
            return ApiStatus(409, "AlreadyExists", _name_object("{} already exists", refusal, resource, name), details)
        case Code.ABORTED if refusal.reason == APPLY_CONFLICT:
            return _apply_conflict(refusal)
        case Code.INVALID_ARGUMENT if refusal.reason in (UNTYPED, UNMERGEABLE):
            return ApiStatus(500, "", refusal.message)
        case Code.ABORTED if kind := dict(refusal.metadata).get(PRECONDITION_KIND):
            return ApiStatus(409, "Conflict", refusal.message, {**(details or {}), "kind": kind})
        case Code.INVALID_ARGUMENT if refusal.reason == TOO_LARGE:
            return ApiStatus(500, "", "etcdserver: request is too large")
        case Code.FAILED_PRECONDITION if refusal.reason == DEFINITION_TERMINATING:
            return ApiStatus(405, "MethodNotAllowed", refusal.message, {})
        case Code.ABORTED | Code.FAILED_PRECONDITION:
            return ApiStatus(409, "Conflict", _conflict_message(refusal, resource, name), details)
        case Code.INVALID_ARGUMENT if refusal.reason == TOO_LARGE_VERSION:
            cause = {"reason": TOO_LARGE_VERSION, "message": "Too large resource version"}
            return ApiStatus(504, "Timeout", f"Timeout: {refusal.message}", {"causes": [cause]}, retry_after=RETRY_AFTER)
        case Code.INVALID_ARGUMENT if refusal.violations:
            return invalid_object(resource, name, refusal.violations, dict(refusal.metadata).get(INVALID_KIND, ""))
        case Code.INVALID_ARGUMENT:
            unknown = _UNKNOWN_FIELD.match(refusal.message)
            return ApiStatus(400, "BadRequest", f"field label not supported: {unknown[1]}" if unknown else refusal.message)
        case Code.OUT_OF_RANGE:
            return ApiStatus(410, "Expired", f"too old resource version: {refusal.message}")
        case Code.PERMISSION_DENIED:
            return ApiStatus(403, "Forbidden", _forbidden_message(refusal, resource, name), details)
        case Code.UNAUTHENTICATED:
            return ApiStatus(401, "Unauthorized", "Unauthorized")
        case Code.RESOURCE_EXHAUSTED if refusal.reason == "DisruptionBudget":
            cause = {"reason": "DisruptionBudget", "message": dict(refusal.metadata).get("cause", refusal.message)}
            return ApiStatus(429, "TooManyRequests", refusal.message, {"causes": [cause]})
        case Code.RESOURCE_EXHAUSTED if refusal.reason == "RequestTooLarge":
            return ApiStatus(413, "RequestEntityTooLarge", refusal.message)
        case Code.RESOURCE_EXHAUSTED:
            return ApiStatus(429, "TooManyRequests", refusal.message, retry_after=RETRY_AFTER)
        case Code.UNAVAILABLE if refusal.reason == "TooManyRequests":
            return ApiStatus(429, "TooManyRequests", refusal.message, retry_after=RETRY_AFTER)
        case Code.UNAVAILABLE:
            return ApiStatus(503, "ServiceUnavailable", refusal.message, retry_after=RETRY_AFTER)
        case Code.UNIMPLEMENTED:
            return ApiStatus(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    message = refusal.message
    return ApiStatus(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})


def _read_details(chosen: Mapping[str, str]) -> Mapping[str, Any] | None:
    details: Mapping[str, Any] | None = json.loads(chosen.get(STATUS_DETAILS, "null"))
    return details


def invalid_options(kind: str, field: str, message: str) -> ApiStatus:
    """Return a 422 for query parameters or options, such as "CreateOptions"."""
    return _invalid_status(META_GROUP, kind, "", (Violation(field, message),))


def invalid_list_options(violations: Sequence[Violation]) -> ApiStatus:
    """Return a 422 for the query parameters of a list or watch."""
    return _invalid_status(META_GROUP, "ListOptions", "", violations)


def invalid_object(resource: ApiResource | None, name: str, violations: Sequence[Violation], kind: str = "") -> ApiStatus:
    """Return a 422 with a cause for each violation. `kind`: in the message, if it is not that of the resource."""
    if resource is None:
        return _invalid_status("", "object", name, violations)
    return _invalid_status(resource.group, kind or resource.kind, name, violations)


def _invalid_status(group: str, kind: str, name: str, violations: Sequence[Violation]) -> ApiStatus:
    causes = [_status_cause(violation) for violation in violations]
    texts = [f"{cause['field']}: {cause['message']}" if "field" in cause else cause["message"] for cause in causes]
    texts = list(dict.fromkeys(texts))  # as in Kubernetes, the message has no duplicates
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind}.{group}" if group else kind
    details: dict[str, Any] = ({"name": name} if name else {}) | ({"group": group} if group else {}) | {"kind": kind}
    return ApiStatus(422, "Invalid", f'{qualified} "{name}" is invalid: {joined}', details | {"causes": causes})


def _status_cause(violation: Violation) -> dict[str, str]:
    message, field = violation.message, {"field": violation.field} if violation.field else {}
    if violation.reason:
        return {"reason": violation.reason, "message": message} | field
    for beginning, reason in _CAUSES:
        if message.startswith(beginning):
            return {"reason": reason, "message": message} | field
    if message.startswith(_REQUIRED):
        return {"reason": "FieldValueRequired", "message": "Required value"} | field
    return {"reason": "FieldValueInvalid", "message": f"Invalid value: {message}"} | field


def _status_details(resource: ApiResource | None, name: str) -> Mapping[str, Any] | None:
    if resource is None:
        return None
    group = {"group": resource.group} if resource.group else {}
    return ({"name": name} if name else {}) | group | {"kind": resource.plural}


def _name_object(form: str, refusal: Refusal, resource: ApiResource | None, name: str) -> str:
    if resource is None or not name:
        return refusal.message
    return form.format(f'{resource.qualified_name} "{name}"')


def _namespace_not_found(refusal: Refusal) -> ApiStatus:
    name = refusal.message.partition('"')[2].partition('"')[0]
    return ApiStatus(404, "NotFound", f'namespaces "{name}" not found', {"name": name, "kind": "namespaces"})


def _conflict_message(refusal: Refusal, resource: ApiResource | None, name: str) -> str:
    if resource is None or not name:
        return refusal.message
    why = MODIFIED if refusal.reason == "Conflict" else refusal.message
    return f'Operation cannot be fulfilled on {resource.qualified_name} "{name}": {why}'


def _apply_conflict(refusal: Refusal) -> ApiStatus:
    """Return a 409 with a cause for each conflict. The message is composed again, because trailers limit its length."""
    causes = [
        {"reason": "FieldManagerConflict", "message": violation.message, "field": violation.field}
        for violation in refusal.violations
        if violation.field
    ]
    complete = len(causes) == len(refusal.violations)
    message = conflict_message(refusal.violations) if complete else refusal.message
    return ApiStatus(409, "Conflict", message, {"causes": causes} if causes else {})


def _forbidden_message(refusal: Refusal, resource: ApiResource | None, name: str) -> str:
    if resource is None or "is forbidden" in refusal.message:
        return refusal.message
    subject = f'{resource.qualified_name} "{name}"' if name else resource.qualified_name
    return f"{subject} is forbidden: {refusal.message}"
