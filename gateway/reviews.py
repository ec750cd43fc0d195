"""Reviews: the identity of a caller or token, and the permissions of a user.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

import time
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from gateway.backend import Backend
from gateway.errors import to_status
from gateway.http import ApiStatus, Request, Response, bad_request
from gateway.media_types import PROTOBUF, body_type, negotiate, parse_body, unwrap
from gateway.objects import document
from gateway.routes import Route
from gateway.wire import WireError, fields
from pinnace.api.authorization_pb2 import (
    AccessReview,
    ResourceAttributes,
    RulesReview,
    SelfSubjectAccessReviewRequest,
    SelfSubjectReviewRequest,
    SelfSubjectRulesReviewRequest,
    SubjectAccessReviewRequest,
    TokenReviewRequest,
    TokenReviewResponse,
    UserInfo,
)
from pinnace.api.codec import to_dict
from pinnace.api.scalars import format_rfc3339, to_time
from pinnace.api.users import Impersonation
from pinnace.client.errors import ApiError

_Schema = Mapping[int, tuple[str, "_Schema | None"]]
"""The fields of a message by number: the name, and the schema of a nested message. Values without a schema are strings."""
_RESOURCE: _Schema = {
    number: (name, None)
    for number, name in enumerate(("namespace", "verb", "group", "version", "resource", "subresource", "name"), 1)
}
_SPEC: _Schema = {
    1: ("resourceAttributes", _RESOURCE),
    2: ("nonResourceAttributes", {1: ("path", None), 2: ("verb", None)}),
    3: ("user", None),
    4: ("groups", None),
}
_SCHEMAS: Mapping[str, _Schema] = {
    "SelfSubjectReview": {},
    "SelfSubjectAccessReview": {2: ("spec", _SPEC)},
    "SubjectAccessReview": {2: ("spec", _SPEC)},
    "LocalSubjectAccessReview": {2: ("spec", _SPEC)},
    "SelfSubjectRulesReview": {2: ("spec", {1: ("namespace", None)})},
    "TokenReview": {2: ("spec", {1: ("token", None)})},
}
_REPEATED = ("groups",)
_SERVICE = "/pinnace.v1.Authorization/"
_READABLE_PATHS = ("/version", "/healthz", "/livez", "/readyz", "/api", "/apis", "/openapi")
"""Paths that every authenticated user can read, including all subpaths."""


class Reviews:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def create(self, request: Request, route: Route) -> Response:
        """Return the review with its status. Raises ApiStatus."""
        form = negotiate(request.headers.get("accept", ""), ())
        kind = route.resource.kind
        spec = _read(request, kind).get("spec") or {}
        if not isinstance(spec, Mapping):
            raise bad_request("spec: expected an object")
        status = await self._status(request, route, spec)
        metadata = {"creationTimestamp": format_rfc3339(to_time(time.time()))} if kind == "SelfSubjectReview" else {}
        head = {"kind": kind, "apiVersion": route.resource.api_version, "metadata": metadata}
        return document(head | ({"spec": dict(spec)} if spec else {}) | {"status": status}, form, 201)

    async def check_impersonation(self, request: Request, impersonation: Impersonation) -> None:
        """Raise ApiStatus (403) unless the user is allowed to impersonate the other user and each of the named groups."""
        checks = [(impersonation.resource, *impersonation.place), *(("groups", "", group) for group in impersonation.groups)]
        for resource, namespace, name in checks:
            attributes = ResourceAttributes(verb="impersonate", resource=resource, namespace=namespace, name=name)
            message = SelfSubjectAccessReviewRequest(attributes=attributes)
            review = AccessReview.FromString(await self._call(request, "SelfSubjectAccessReview", message))
            if not review.allowed:
                what = f'{resource} "{name}" is forbidden: User "{request.user.name}" cannot impersonate resource "{resource}"'
                where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
                message_text = f'{what} in API group "" {where}'
                raise ApiStatus(403, "Forbidden", message_text, {"name": name, "kind": resource})

    async def _status(self, request: Request, route: Route, spec: Mapping[str, Any]) -> dict[str, Any]:
        kind = route.resource.kind
        if kind == "SelfSubjectReview":
            user = UserInfo.FromString(await self._call(request, "SelfSubjectReview", SelfSubjectReviewRequest()))
            return {"userInfo": {"username": user.username, "groups": list(user.groups)}}
        if kind == "SelfSubjectRulesReview":
            rules = SelfSubjectRulesReviewRequest(namespace=_text(spec, "namespace"))
            found = RulesReview.FromString(await self._call(request, "SelfSubjectRulesReview", rules))
            return _rules(found)
        if kind == "TokenReview":
            token = TokenReviewRequest(token=_text(spec, "token"))
            return _token_status(TokenReviewResponse.FromString(await self._call(request, "TokenReview", token)))
        if path := _path(spec):
            return {"allowed": path.startswith(_READABLE_PATHS), "reason": ""}
        attributes = _attributes(spec)
        if kind == "LocalSubjectAccessReview" and attributes.namespace != route.namespace:
            raise bad_request(f"spec.resourceAttributes.namespace must match namespace: {route.namespace}")
        if kind == "SelfSubjectAccessReview":
            message: Message = SelfSubjectAccessReviewRequest(attributes=attributes)
            data = await self._call(request, "SelfSubjectAccessReview", message)
        else:
            groups = spec.get("groups") or []
            message = SubjectAccessReviewRequest(user=_text(spec, "user"), groups=groups, attributes=attributes)
            data = await self._call(request, "SubjectAccessReview", message)
        review = AccessReview.FromString(data)
        return {"allowed": review.allowed} | ({"reason": review.reason} if review.reason else {})

    async def _call(self, request: Request, method: str, message: Message) -> bytes:
        try:
            return await self._backend.call(request, _SERVICE + method, message, retry=True)
        except ApiError as error:
            raise to_status(error) from None


def _token_status(review: TokenReviewResponse) -> dict[str, Any]:
    if not review.HasField("user"):
        return {"user": {}, "error": review.error}
    return {"authenticated": True, "user": {"username": review.user.username, "groups": list(review.user.groups)}}


def _read(request: Request, kind: str) -> Mapping[str, Any]:
    if not request.body.strip():
        return {}
    media_type = body_type(request.headers.get("content-type", ""))
    if media_type == PROTOBUF:
        try:
            return _decode(unwrap(request.body).data, _SCHEMAS[kind])
        except (WireError, UnicodeDecodeError) as error:
            raise bad_request(f"unable to decode the {kind}: {error}") from None
    data = parse_body(request.body, media_type)
    if not isinstance(data, Mapping):
        raise bad_request("expected an object")
    return data


def _decode(data: bytes, schema: _Schema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in fields(data):
        if number not in schema or not isinstance(value, bytes):
            continue
        name, inner = schema[number]
        decoded = _decode(value, inner) if inner is not None else value.decode()
        if name in _REPEATED:
            found.setdefault(name, []).append(decoded)
        else:
            found[name] = decoded
    return found


def _attributes(spec: Mapping[str, Any]) -> ResourceAttributes:
    given = spec.get("resourceAttributes")
    if not isinstance(given, Mapping):
        raise bad_request("spec: exactly one of resourceAttributes and nonResourceAttributes must be given")
    return ResourceAttributes(
        **{name: _text(given, name) for name in ("namespace", "verb", "group", "resource", "subresource", "name")}
    )


def _path(spec: Mapping[str, Any]) -> str:
    given = spec.get("nonResourceAttributes")
    return _text(given, "path") if isinstance(given, Mapping) else ""


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name, "")
    if not isinstance(value, str):
        raise bad_request(f"{name}: expected a string")
    return value


def _rules(review: RulesReview) -> dict[str, Any]:
    resource_rules, other = list[dict[str, Any]](), list[dict[str, Any]]()
    for rule in review.rules:
        found = to_dict(rule)
        (other if rule.nonResourceURLs else resource_rules).append(found)
    other.append({"verbs": ["get"], "nonResourceURLs": [f"{path}*" for path in _READABLE_PATHS]})
    return {"resourceRules": resource_rules, "nonResourceRules": other, "incomplete": False}
