"""Tokens of service accounts: the subresource `token`, and the documents for verifiers outside of the cluster.

    POST .../serviceaccounts/NAME/token     /.well-known/openid-configuration     /openid/v1/jwks

Source: https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#service-account-issuer-discovery
"""

import time
from typing import Any

from pinnace.api.authentication_v1_pb2 import TokenRequest
from pinnace.api.codec import to_dict
from pinnace.api.status import PRECONDITION_KIND
from pinnace.api.tokens_pb2 import CreateTokenRequest, GetIssuerRequest, TokenIssuer
from pinnace.client.errors import ApiError, Conflict, NotFound
from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.backend import Backend
from pinnace.gateway.bodies import BodyType, read_dry_run, read_field_manager, read_field_validation, read_message
from pinnace.gateway.errors import convert_error
from pinnace.gateway.http import ApiStatus, PageNotFound, Request, Response, dump_json
from pinnace.gateway.managed import managed_fields
from pinnace.gateway.media_types import PROTOBUF, envelope, negotiate, parse_accept
from pinnace.gateway.objects import respond_document
from pinnace.gateway.routes import Route

CONFIGURATION_PATH, KEYS_PATH = "/.well-known/openid-configuration", "/openid/v1/jwks"
KEYS_TYPE = "application/jwk-set+json"
_ACCEPTED = (KEYS_TYPE, "application/*", "*/*")
API_VERSION = "authentication.k8s.io/v1"
TOKEN_REQUEST = ApiResource("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest", True, ("create",))
_BODY = BodyType("TokenRequest", (API_VERSION,))
DEFAULT_SECONDS = 3600
_MAX_AGE = 3600
"""Seconds for which verifiers may keep the documents, as in Kubernetes."""


class TokenHandlers:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def create(self, request: Request, route: Route) -> Response:
        """Return a TokenRequest with a token. Raises ApiStatus."""
        form = negotiate(request.headers.get("accept", ""), ())
        token = read_message(request, TokenRequest, _BODY, read_field_validation(request))
        read_dry_run(request)
        fields = {"expirationSeconds": DEFAULT_SECONDS} | to_dict(token.spec)
        manager = read_field_manager(request)
        message = CreateTokenRequest(object=token, namespace=route.namespace, name=route.name)
        try:
            data = await self._backend.call(request, "/pinnace.v1.Tokens/Create", message)
        except ApiError as error:
            raise _convert_token_error(error, route) from None
        if form.media_type == PROTOBUF:
            return Response(201, envelope(API_VERSION, "TokenRequest", data), PROTOBUF)
        document = to_dict(TokenRequest.FromString(data))
        if entries := managed_fields(manager, API_VERSION, {"spec": fields}, time.time(), route.subresource):
            document["metadata"]["managedFields"] = entries
        document["spec"].setdefault("boundObjectRef", None)  # Kubernetes shows it
        return respond_document({"kind": "TokenRequest", "apiVersion": API_VERSION} | document, form, 201)

    async def respond(self, request: Request) -> Response:
        """Return the discovery document or the key set. Raises ApiStatus."""
        try:
            data = await self._backend.call(request, "/pinnace.v1.Tokens/GetIssuer", GetIssuerRequest(), retry=True)
        except ApiError as error:
            status = convert_error(error)
            raise PageNotFound if status.code == 405 else status from None
        issuer = TokenIssuer.FromString(data)
        headers = {"Cache-Control": f"public, max-age={_MAX_AGE}"}
        if request.path.rstrip("/") == KEYS_PATH:
            check_accepted(request)
            return Response(200, issuer.keys, KEYS_TYPE, headers)
        uri = issuer.keysURI or f"https://{request.headers.get('host', '')}{KEYS_PATH}"
        return Response(200, dump_json(provider_document(issuer, uri)), headers=headers)


def check_accepted(request: Request) -> None:
    """Raise ApiStatus (406) unless the client accepts a key set. As in Kubernetes, JSON is not enough."""
    accept = request.headers.get("accept", "")
    if accept and not any(clause.media_type in _ACCEPTED for clause in parse_accept(accept)):
        raise ApiStatus(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {KEYS_TYPE}", {})


def is_issuer_path(path: str) -> bool:
    return path.rstrip("/") in (CONFIGURATION_PATH, KEYS_PATH)


def provider_document(issuer: TokenIssuer, uri: str) -> dict[str, Any]:
    """Return the document of an OpenID provider. `uri`: the address of the key set."""
    return {
        "issuer": issuer.issuer,
        "jwks_uri": uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": list(issuer.algorithms),
    }


def _convert_token_error(error: ApiError, route: Route) -> ApiStatus:
    """Convert an error. Its metadata name the object that it is about, which may be another one than the service account."""
    facts = dict(error.refusal.metadata)
    details = {"name": facts["name"]} if facts.get("name") else {}
    match error:
        case NotFound() if "kind" in facts:
            return ApiStatus(404, "NotFound", error.message, details | {"kind": facts["kind"]})
        case Conflict() if PRECONDITION_KIND in facts:
            kind, _, group = facts[PRECONDITION_KIND].partition(".")
            return ApiStatus(409, "Conflict", error.message, details | ({"group": group} if group else {}) | {"kind": kind})
    if error.refusal.violations:
        return convert_error(error, TOKEN_REQUEST, facts.get("name", ""))
    return convert_error(error, route.resource, route.name)
