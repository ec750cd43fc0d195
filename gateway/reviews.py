"""Reviews: the identity of a caller or token, and the permissions of a user.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

import time
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

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
    UserExtra,
    UserInfo,
)
from pinnace.api.codec import to_dict
from pinnace.api.scalars import format_rfc3339, to_time
from pinnace.api.status import Violation
from pinnace.api.users import Impersonation
from pinnace.client.errors import ApiError
from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.backend import Backend
from pinnace.gateway.bodies import body_type_of, read_field_manager, read_typed
from pinnace.gateway.errors import convert_error, invalid_object
from pinnace.gateway.http import ApiStatus, Request, Response, bad_request
from pinnace.gateway.managed import managed_fields
from pinnace.gateway.media_types import negotiate
from pinnace.gateway.objects import respond_document
from pinnace.gateway.routes import Route
from pinnace.gateway.wire import WireError, iterate_fields

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
    "TokenReview": {2: ("spec", {1: ("token", None), 2: ("audiences", None)})},
}
_REPEATED = ("groups", "audiences")
_SERVICE = "/pinnace.v1.Authorization/"
_EVERY_PATH = "/*"
"""Stands for a path without a leading slash, which only rules for all paths match."""


class Reviews:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def create(self, request: Request, route: Route) -> Response:
        """Return the review with its status. Raises ApiStatus."""
        form = negotiate(request.headers.get("accept", ""), ())
        kind = route.resource.kind
        spec = _read_review(request, route.resource).get("spec") or {}
        if not isinstance(spec, Mapping):
            raise bad_request("spec: expected an object")
        status = await self._review_status(request, route, spec)
        metadata: dict[str, Any] = {}
        if kind == "SelfSubjectReview":
            metadata["creationTimestamp"] = format_rfc3339(to_time(time.time()))
        elif entries := managed_fields(read_field_manager(request), route.resource.api_version, {"spec": spec}, time.time()):
            metadata["managedFields"] = entries
        head = {"kind": kind, "apiVersion": route.resource.api_version, "metadata": metadata}
        return respond_document(head | ({"spec": dict(spec)} if spec else {}) | {"status": status}, form, 201)

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

    async def check_path(self, request: Request) -> None:
        """Raise ApiStatus (403) unless the user is allowed to use the method on a path that is not one of a resource."""
        verb, path = request.method.lower(), request.path
        attributes = ResourceAttributes(verb=verb, resource=path)
        message = SelfSubjectAccessReviewRequest(attributes=attributes)
        review = AccessReview.FromString(await self._call(request, "SelfSubjectAccessReview", message))
        if not review.allowed:
            raise ApiStatus(403, "Forbidden", f'forbidden: User "{request.user.name}" cannot {verb} path "{path}"', {})

    async def _review_status(self, request: Request, route: Route, spec: Mapping[str, Any]) -> dict[str, Any]:
        kind = route.resource.kind
        if kind == "SelfSubjectReview":
            user = UserInfo.FromString(await self._call(request, "SelfSubjectReview", SelfSubjectReviewRequest()))
            own = UserInfo(username=user.username, groups=user.groups, uid=request.user.uid)
            own.extra.extend(UserExtra(key=key, values=values) for key, values in request.user.extra)
            return {"userInfo": _user_document(own)}
        if kind == "SelfSubjectRulesReview":
            rules = SelfSubjectRulesReviewRequest(namespace=_string_field(spec, "namespace"))
            rules_review = RulesReview.FromString(await self._call(request, "SelfSubjectRulesReview", rules))
            return _build_rules_status(rules_review)
        if kind == "TokenReview":
            token = TokenReviewRequest(token=_string_field(spec, "token"), audiences=_string_list_field(spec, "audiences"))
            return _token_status(TokenReviewResponse.FromString(await self._call(request, "TokenReview", token)))
        attributes = _review_attributes(route, spec)
        if kind == "LocalSubjectAccessReview" and attributes.namespace != route.namespace:
            raise bad_request(f"spec.resourceAttributes.namespace must match namespace: {route.namespace}")
        if kind == "SelfSubjectAccessReview":
            message: Message = SelfSubjectAccessReviewRequest(attributes=attributes)
            data = await self._call(request, "SelfSubjectAccessReview", message)
        else:
            groups = _string_list_field(spec, "groups")
            message = SubjectAccessReviewRequest(user=_string_field(spec, "user"), groups=groups, attributes=attributes)
            data = await self._call(request, "SubjectAccessReview", message)
        review = AccessReview.FromString(data)
        return {"allowed": review.allowed} | ({"reason": review.reason} if review.reason else {})

    async def _call(self, request: Request, method: str, message: Message) -> bytes:
        try:
            return await self._backend.call(request, _SERVICE + method, message, retry=True)
        except ApiError as error:
            raise convert_error(error) from None


def _token_status(review: TokenReviewResponse) -> dict[str, Any]:
    if not review.HasField("user"):
        return {"user": {}, "error": review.error}
    audiences = {"audiences": list(review.audiences)} if review.audiences else {}
    return {"authenticated": True, "user": _user_document(review.user)} | audiences


def _user_document(user: UserInfo) -> dict[str, Any]:
    extra = {item.key: list(item.values) for item in user.extra}
    result = {"username": user.username, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {name: value for name, value in result.items() if value}


def _read_review(request: Request, resource: ApiResource) -> Mapping[str, Any]:
    data = read_typed(request, body_type_of(resource))
    if isinstance(data, bytes):
        try:
            return _decode_spec(data, _SCHEMAS[resource.kind])
        except (WireError, UnicodeDecodeError) as error:
            raise bad_request(f"unable to decode the {resource.kind}: {error}") from None
    return data


def _decode_spec(data: bytes, schema: _Schema) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for number, value in iterate_fields(data):
        if number not in schema or not isinstance(value, bytes):
            continue
        name, inner = schema[number]
        decoded = _decode_spec(value, inner) if inner is not None else value.decode()
        if name in _REPEATED:
            result.setdefault(name, []).append(decoded)
        else:
            result[name] = decoded
    return result


def _review_attributes(route: Route, spec: Mapping[str, Any]) -> ResourceAttributes:
    """Return the attributes to review. Those of a path have the path as their resource. Raises ApiStatus (422)."""
    resource, path = _object_field(spec, "resourceAttributes"), _object_field(spec, "nonResourceAttributes")
    violations = []
    if resource is not None and path is not None:
        both = "Invalid value: cannot be specified in combination with resourceAttributes"
        violations.append(Violation("spec.nonResourceAttributes", both))
    if resource is None and path is None:
        neither = 'Invalid value: "null": exactly one of nonResourceAttributes or resourceAttributes must be specified'
        violations.append(Violation("spec.resourceAttributes", neither))
    if route.resource.kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        violations.append(Violation("spec.user", 'Invalid value: "": at least one of user or group must be specified'))
    if route.resource.kind == "LocalSubjectAccessReview" and path is not None:
        local = "Invalid value: disallowed on this kind of request"
        violations.append(Violation("spec.nonResourceAttributes", local))
    if violations:
        raise invalid_object(route.resource, "", tuple(violations))
    if path is not None:
        url = _string_field(path, "path")
        return ResourceAttributes(verb=_string_field(path, "verb"), resource=url if url.startswith("/") else _EVERY_PATH)
    assert resource is not None
    return ResourceAttributes(
        **{name: _string_field(resource, name) for name in ("namespace", "verb", "group", "resource", "subresource", "name")}
    )


def _object_field(spec: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    part = spec.get(name)
    if part is not None and not isinstance(part, Mapping):
        raise bad_request(f"spec.{name}: expected an object")
    return part


def _string_field(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name, "")
    if not isinstance(value, str):
        raise bad_request(f"{name}: expected a string")
    return value


def _string_list_field(data: Mapping[str, Any], name: str) -> list[str]:
    values = data.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise bad_request(f"{name}: expected a list of strings")
    return values


def _build_rules_status(review: RulesReview) -> dict[str, Any]:
    resource_rules, other = list[dict[str, Any]](), list[dict[str, Any]]()
    for rule in review.rules:
        (other if rule.nonResourceURLs else resource_rules).append(to_dict(rule))
    return {"resourceRules": resource_rules, "nonResourceRules": other, "incomplete": False}
