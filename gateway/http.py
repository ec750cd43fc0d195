"""Requests and responses as plain values, independent of the HTTP server."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.api.integers import parse_integer
from pinnace.api.users import ANONYMOUS as ANONYMOUS_NAME
from pinnace.api.users import UNAUTHENTICATED, Impersonation

JSON = "application/json"
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
"""The true values of Go's strconv.ParseBool."""
_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class User:
    """The authenticated user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = field(default="", compare=False)
    extra: tuple[tuple[str, tuple[str, ...]], ...] = field(default=(), compare=False)
    """Facts about the credential, such as the pod of a token."""


ANONYMOUS = User(ANONYMOUS_NAME, (UNAUTHENTICATED,))


@dataclass(slots=True)
class Request:
    """An HTTP request. Header names are in lower case; of several headers with a name, `headers` has the first. The path is
    percent-encoded. `body` is set when the dispatcher has read it."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    body: bytes = b""
    user: User = ANONYMOUS
    impersonation: Impersonation | None = None
    """The request of the impersonation headers to act as another user."""
    warnings: list[str] = field(default_factory=list)
    """The `Warning` headers of the response."""
    created: bool = False
    """Whether a patch created the object."""

    def param(self, name: str) -> str:
        """Return the first value of a query parameter, or ""."""
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """Return a boolean query parameter in Go's syntax."""
        return self.param(name) in _TRUE

    def number(self, name: str) -> int | None:
        """Return an integer query parameter, or None. Raises ApiStatus (400)."""
        value = self.param(name)
        if not value:
            return None
        if (number := parse_integer(value)) is not None:
            return number
        problem = "value out of range" if _INTEGER.fullmatch(value) else "invalid syntax"
        raise bad_request(f'{name}: strconv.ParseInt: parsing "{value[:64]}": {problem}')


@dataclass(slots=True)
class Response:
    """A response with a body of bytes, or of chunks."""

    code: int
    body: bytes | AsyncIterator[bytes]
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    is_live: bool = False
    """Whether the chunks are events, such as those of a watch: they are not compressed, and end when the gateway stops."""
    is_static: bool = False
    """Whether all requests get the same body object, so that its compressed form is kept."""


class ApiStatus(Exception):
    """An error that is returned to the client as a Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_status, (self.code, self.reason, self.message, self.details, self.retry_after)

    @property
    def document(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            result["reason"] = self.reason
        if self.details is not None or self.retry_after is not None:
            result["details"] = dict(self.details or {})
            if self.retry_after is not None:
                result["details"]["retryAfterSeconds"] = self.retry_after
        result["code"] = self.code
        return result


def _restore_status(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None, retry_after: int | None
) -> ApiStatus:
    """Unpickle a status from a worker process."""
    return ApiStatus(code, reason, message, details, retry_after=retry_after)


def success_status_object(details: Mapping[str, Any] | None = None, code: int = 0) -> dict[str, Any]:
    """Return the Status of a request without an object. `code`: 0 omits the code, as Kubernetes does after a delete."""
    result: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return result | ({"details": dict(details)} if details else {}) | ({"code": code} if code else {})


def dump_json(document: Any) -> bytes:
    """Return compact JSON with a newline, as Kubernetes does."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(errors="replace") + b"\n"


def bad_request(message: str) -> ApiStatus:
    return ApiStatus(400, "BadRequest", message)


class PageNotFound(ApiStatus):
    """The path belongs to no group and version. The response is plain text, as in Kubernetes."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def path_not_found() -> ApiStatus:
    """Return a 404 for a path of a group and version that has no such resource."""
    return ApiStatus(404, "NotFound", "the server could not find the requested resource", {})


def not_found(qualified: str, name: str) -> ApiStatus:
    plural, _, group = qualified.partition(".")
    details = {"name": name} | ({"group": group} if group else {}) | {"kind": plural}
    return ApiStatus(404, "NotFound", f'{qualified} "{name}" not found', details)


def method_not_allowed() -> ApiStatus:
    return ApiStatus(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def method_not_supported(qualified: str, verb: str) -> ApiStatus:
    """Return a 405 for a verb that a resource or subresource of a custom kind does not have."""
    plural, _, group = qualified.partition(".")
    message = f'{verb} is not supported on resources of kind "{qualified}"'
    return ApiStatus(405, "MethodNotAllowed", message, {"group": group, "kind": plural})


def unauthorized() -> ApiStatus:
    return ApiStatus(401, "Unauthorized", "Unauthorized")
