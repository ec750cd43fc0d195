"""The services for health, server reflection, authorization reviews, and the version of the server.

Health reports the readiness of this server (`Check`). `Watch` and `List` are not supported. Tools such as grpcurl find the API
by reflection. A reflection stream needs a seat for each request, ends after IDLE seconds without a request, and the number of
streams per user is limited (apiserver.services.methods).

Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md,
https://github.com/grpc/grpc/blob/master/doc/server-reflection.md
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

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
from pinnace.api.status import Code, Refusal
from pinnace.api.version_pb2 import GetVersionRequest, VersionInfo
from pinnace.apiserver import errors
from pinnace.apiserver.auth.authentication import TokenAuthenticator, User
from pinnace.apiserver.auth.authorizer import UnionAuthorizer
from pinnace.apiserver.auth.permissions import ActionTarget, ResourceAction
from pinnace.apiserver.auth.tokens import MAX_TOKEN, AccountTokenAuthenticator, InvalidToken, ReviewedToken, UnsignedToken
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.methods import Context
from pinnace.runtime.build import build_version

HEALTH: Sequence[MethodDescriptor] = (health_pb2.DESCRIPTOR.services_by_name["Health"].methods_by_name["Check"],)
REFLECTION: Sequence[MethodDescriptor] = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"].methods
GRPCS_OWN: Sequence[ServiceDescriptor] = (HEALTH[0].containing_service, REFLECTION[0].containing_service)
IDLE = 30.0
"""Maximum seconds between two requests of a reflection stream."""
_NOT_FOUND, _INVALID = Code.NOT_FOUND, Code.INVALID_ARGUMENT
_INVALID_TOKEN = "invalid bearer token"
MAX_QUESTION = 4096
"""Maximum size in bytes of the user and the attributes in a review. The results are cached, and every user may send reviews."""


class HealthService:
    """Implements grpc.health.v1. `readiness` returns None if the server is ready, else the reason. All `services` have the
    health of the server."""

    def __init__(self, readiness: Callable[[], str | None], services: Collection[str]) -> None:
        self._readiness = readiness
        self._services = services

    async def check(self, request: HealthCheckRequest, context: Context) -> HealthCheckResponse:
        """Return the health of a service. Raises Rejected (NOT_FOUND) if the server has no such service."""
        if request.service and request.service not in self._services:
            raise Rejected(Refusal(Code.NOT_FOUND, "NotFound", "the server has no service with this name"))
        ready = self._readiness() is None
        return HealthCheckResponse(status=HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING)


class ReflectionService:
    """Implements reflection of the `services`. Each file descriptor is encoded once."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = services
        self._pool = descriptor_pool.Default()
        self._files: dict[str, Sequence[bytes]] = {}  # encoded files with their imports, by file name

    async def server_reflection_info(
        self, requests: AsyncIterator[ServerReflectionRequest], context: Context
    ) -> AsyncGenerator[ServerReflectionResponse, None]:
        """Respond to requests. Raises Rejected (DEADLINE_EXCEEDED) after IDLE seconds without a request."""
        while True:
            try:
                async with asyncio.timeout(IDLE):
                    request = await anext(requests, None)
            except TimeoutError:
                message = f"no request within {IDLE:g} s: open another stream"
                raise Rejected(Refusal(Code.DEADLINE_EXCEEDED, "Timeout", message)) from None
            if request is None:
                return
            yield self._answer_reflection(request)

    def _answer_reflection(self, request: ServerReflectionRequest) -> ServerReflectionResponse:
        response = ServerReflectionResponse(valid_host=request.host)
        response.original_request.CopyFrom(request)
        try:
            match request.WhichOneof("message_request"):
                case "list_services":
                    for name in self._services:
                        response.list_services_response.service.add(name=name)
                case "file_by_filename":
                    file_descriptor = self._pool.FindFileByName(request.file_by_filename)
                    response.file_descriptor_response.file_descriptor_proto[:] = self._encode_with_dependencies(file_descriptor)
                case "file_containing_symbol":
                    file_descriptor = self._pool.FindFileContainingSymbol(request.file_containing_symbol)
                    response.file_descriptor_response.file_descriptor_proto[:] = self._encode_with_dependencies(file_descriptor)
                case "file_containing_extension" | "all_extension_numbers_of_type":  # the API has no extensions
                    _set_error(response, _NOT_FOUND, "the API has no extensions")
                case _:
                    _set_error(response, _INVALID, "unknown kind of request")
        except KeyError:
            _set_error(response, _NOT_FOUND, "not found")
        return response

    def _encode_with_dependencies(self, file: FileDescriptor) -> Sequence[bytes]:
        result = self._files.get(file.name)
        if result is None:
            files: dict[str, bytes] = {}
            _collect_files(file, files)
            result = self._files[file.name] = tuple(files.values())
        return result


def _collect_files(file: FileDescriptor, into: dict[str, bytes]) -> None:
    if file.name not in into:
        into[file.name] = file.serialized_pb
        for imported in file.dependencies:
            _collect_files(imported, into)


def _set_error(response: ServerReflectionResponse, code: Code, message: str) -> None:
    response.error_response.error_code, response.error_response.error_message = int(code), message


class AuthorizationService:
    def __init__(
        self,
        policy: UnionAuthorizer,
        tokens: TokenAuthenticator,
        accounts: AccountTokenAuthenticator | None = None,
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`tokens`: those without an audience. `accounts`: the tokens of service accounts. `refresh` brings the caches that it
        reads up to date."""
        self._policy = policy
        self._tokens = tokens
        self._accounts = accounts
        self._refresh = refresh

    async def self_subject_review(self, request: SelfSubjectReviewRequest, context: Context) -> UserInfo:
        user: User = context.user
        return user_info(user)

    async def self_subject_access_review(self, request: SelfSubjectAccessReviewRequest, context: Context) -> AccessReview:
        return await self._review_access(context.user, request.attributes)

    async def subject_access_review(self, request: SubjectAccessReviewRequest, context: Context) -> AccessReview:
        if not request.user and not request.groups:
            raise Rejected(errors.bad_request("user: Required value: at least one of user or group must be specified"))
        if request.ByteSize() > MAX_QUESTION:
            raise Rejected(_too_many_attributes())
        return await self._review_access(User(request.user, tuple(request.groups)), request.attributes)

    async def token_review(self, request: TokenReviewRequest, context: Context) -> TokenReviewResponse:
        """Return the user of a token. The error for an invalid token gives no reason, as in Kubernetes."""
        if not request.token:
            raise Rejected(errors.bad_request("token is required for TokenReview in authentication"))
        if len(request.token) > MAX_TOKEN or request.ByteSize() > MAX_TOKEN + MAX_QUESTION:
            return TokenReviewResponse(error=_INVALID_TOKEN)
        own = self._accounts.audiences if self._accounts is not None else ()
        audiences = [audience for audience in request.audiences or own if audience in own]
        if (user := self._tokens.user(request.token)) is not None and (audiences or not request.audiences):
            return TokenReviewResponse(user=user_info(user), audiences=audiences)
        try:
            review = await self._review_account_token(request.token, request.audiences)
        except InvalidToken as problem:
            return TokenReviewResponse(error=f"[{_INVALID_TOKEN}, {problem}]" if str(problem) else _INVALID_TOKEN)
        return TokenReviewResponse(user=user_info(review.user), audiences=review.audiences)

    async def _review_account_token(self, token: str, audiences: Collection[str]) -> ReviewedToken:
        """Review a token. A token that the cluster has signed is reviewed again after a refresh of the caches, which may not
        have its objects yet. Raises InvalidToken."""
        if self._accounts is None or self._refresh is None:
            raise UnsignedToken
        try:
            return self._accounts.review(token, audiences)
        except UnsignedToken:
            raise
        except InvalidToken:
            await self._refresh()
            return self._accounts.review(token, audiences)

    async def self_subject_rules_review(self, request: SelfSubjectRulesReviewRequest, context: Context) -> RulesReview:
        rules = await self._policy.rules(context.user, request.namespace)
        return RulesReview(rules=rules)

    async def _review_access(self, user: User, wanted: ResourceAttributes) -> AccessReview:
        if not wanted.verb or not wanted.resource:
            raise Rejected(errors.bad_request("attributes: Required value: verb and resource"))
        if wanted.ByteSize() > MAX_QUESTION:
            raise Rejected(_too_many_attributes())
        resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
        action = ResourceAction(wanted.verb, resource, wanted.group)
        allowed, reason = await self._policy.review(user, action, ActionTarget(wanted.namespace, wanted.name))
        return AccessReview(allowed=allowed, reason=reason)


def user_info(user: User) -> UserInfo:
    extra = [UserExtra(key=key, values=values) for key, values in user.extra]
    return UserInfo(username=user.name, groups=user.groups, nodes=user.nodes.patterns, uid=user.uid, extra=extra)


def _too_many_attributes() -> Refusal:
    return errors.bad_request(f"user and attributes of a review: Too long: may not be more than {MAX_QUESTION} bytes")


class VersionService:
    async def get(self, request: GetVersionRequest, context: Context) -> VersionInfo:
        return VersionInfo(version=build_version())
