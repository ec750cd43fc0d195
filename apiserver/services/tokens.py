"""TokenRequest: tokens of service accounts, optionally bound to a Pod, Secret or Node.

A fleet gets tokens only for the pods on its own nodes, for audiences that the pod's volumes name.

Source: pkg/registry/core/serviceaccount/storage/token.go and plugin/pkg/admission/noderestriction of Kubernetes 1.36, which
also define the messages.
"""

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pinnace.api.authentication_v1_pb2 import BoundObjectReference, TokenRequest
from pinnace.api.core_v1_pb2 import Node, Pod, ServiceAccount
from pinnace.api.names import new_uid
from pinnace.api.resources import DEFAULT_NAMESPACE, NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource
from pinnace.api.scalars import to_time
from pinnace.api.status import PRECONDITION_KIND, Code, Refusal, Violation, summarize
from pinnace.api.tokens_pb2 import CreateTokenRequest, GetIssuerRequest, TokenIssuer
from pinnace.apiserver import errors
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.tokens import AccountClaims, ObjectId, TokenSettings, encode_claims
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.strategy import add_warnings
from pinnace.apiserver.services.methods import Context, read_timeout
from pinnace.runtime.clock import Clock

KIND, GROUP = "TokenRequest", "authentication.k8s.io"
MIN_SECONDS, MAX_SECONDS, DEFAULT_SECONDS = 600, 1 << 32, 3600
EXTENDED_FROM = 3607
"""The lifetime in seconds of tokens of the volume that admission adds to pods. Only such tokens are extended."""
EXTENDED = 365 * 24 * 3600
"""Seconds for which an extended token is valid. Kubelets replace it after EXTENDED_FROM seconds; until all clients read their
token again, an older one works."""
_BOUND: Mapping[str, Resource[Any]] = {"Pod": PODS, "Secret": SECRETS, "Node": NODES}

Owns = Callable[[User, str], bool]
"""Returns whether a node belongs to the user's fleet."""


class TokensService:
    """`settings`: None on a server without a signing key."""

    def __init__(self, settings: TokenSettings | None, cacher: Cacher, owns: Owns, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._cacher = cacher
        self._owns = owns
        self._clock = clock
        self._rng = rng

    async def create(self, request: CreateTokenRequest, context: Context) -> TokenRequest:
        """Sign a token. Raises Rejected, CacheError, StorageError."""
        settings = self._require_settings()
        token = request.object
        namespace = request.namespace or DEFAULT_NAMESPACE
        _check_identity(token, namespace, request.name)
        await self._cacher.wait_until_fresh(read_timeout(context))
        account: ServiceAccount = self._find_object(SERVICE_ACCOUNTS, namespace, request.name)
        _complete_token_request(token, account, settings)
        now = self._clock.time()
        token.metadata.creationTimestamp.CopyFrom(to_time(int(now)))
        if violations := validate_token_request(token):
            raise Rejected(_invalid_token_request("", violations))
        bound = self._bound_object(token, account) if token.spec.HasField("boundObjectRef") else None
        if context.user.fleet is not None:
            self._restrict_fleet(context.user, token, bound)
        _shorten_expiration(token, settings.max_seconds)
        claims = make_claims(token, account, bound, self._bound_node(bound), int(now), new_uid(self._rng), settings)
        token.status.token = settings.keys().sign(encode_claims(claims, settings.issuer))
        token.status.expirationTimestamp.CopyFrom(to_time(int(now) + token.spec.expirationSeconds))
        return token

    async def get_issuer(self, request: GetIssuerRequest, context: Context) -> TokenIssuer:
        settings = self._require_settings()
        keys = settings.keys()
        algorithms = sorted({key.algorithm for key in keys.verifying.values()})
        return TokenIssuer(
            issuer=settings.issuer, keys=keys.json_web_key_set(), algorithms=algorithms, keysURI=settings.jwks_uri
        )

    def _require_settings(self) -> TokenSettings:
        if self._settings is None:
            message = "the API server has no key for tokens: --service-account-signing-key-file is not set"
            raise Rejected(Refusal(Code.UNIMPLEMENTED, "NotFound", message))
        return self._settings

    def _find_object(self, resource: Resource[Any], namespace: str, name: str) -> Any:
        entry = self._cacher.cache_of(resource).get(resource.key(namespace, name))
        if entry is None:
            refusal = errors.not_found(resource, name)
            raise Rejected(
                refusal.__class__(refusal.code, refusal.reason, refusal.message, metadata=_error_metadata(resource, name))
            )
        return entry.obj

    def _bound_object(self, token: TokenRequest, account: ServiceAccount) -> Any:
        """Return the object of boundObjectRef. Raises Rejected."""
        reference = token.spec.boundObjectRef
        group = reference.apiVersion.rpartition("/")[0]
        resource = _BOUND.get(reference.kind) if not group else None
        if resource is None:
            raise Rejected(errors.bad_request(f"cannot bind token to object of type {_describe_type(reference)}"))
        bound = self._find_object(resource, account.metadata.namespace, reference.name)
        if isinstance(bound, Pod) and bound.spec.serviceAccountName != account.metadata.name:
            text = f'cannot bind token for serviceaccount "{account.metadata.name}" to pod running with different '
            raise Rejected(errors.bad_request(f"{text}serviceaccount name."))
        if reference.uID and reference.uID != bound.metadata.uid:
            raise Rejected(_conflict_refusal(reference.kind, reference.name, _uid_conflict(reference.uID)))
        return bound

    def _bound_node(self, bound: Any) -> ObjectId | None:
        """Return the node of a pod, without its UID if the node does not exist; or the bound node."""
        if isinstance(bound, Node):
            return ObjectId(bound.metadata.name, bound.metadata.uid)
        if not isinstance(bound, Pod) or not (name := bound.spec.nodeName):
            return None
        entry = self._cacher.cache_of(NODES).get(NODES.key("", name))
        return ObjectId(name, entry.obj.metadata.uid if entry is not None else "")

    def _restrict_fleet(self, user: User, token: TokenRequest, bound: Any) -> None:
        """Raise Rejected unless the token is for a pod on a node of the fleet, and for an audience of its volumes."""
        reference = token.spec.boundObjectRef
        if not isinstance(bound, Pod):
            raise Rejected(_account_forbidden(token, "node requested token not bound to a pod"))
        if not reference.uID:
            raise Rejected(_account_forbidden(token, "node requested token with a pod binding without a uid"))
        if not bound.spec.nodeName or not self._owns(user, bound.spec.nodeName):
            raise Rejected(_account_forbidden(token, "node requested token bound to a pod scheduled on a different node"))
        requested = list(token.spec.audiences)
        if len(requested) > 1:
            raise Rejected(_account_forbidden(token, "node may only request 0 or 1 audiences"))
        own = self._require_settings().audiences
        if not set(requested) <= token_audiences(bound, own):
            text = f'audience "{requested[0]}" not found in pod spec volume'
            raise Rejected(_account_forbidden(token, text))


def token_audiences(pod: Pod, own: Collection[str]) -> set[str]:
    """Return the audiences of the tokens in the volumes of a pod. `own`: those of the API server, for tokens without one."""
    audiences = set[str]()
    for volume in pod.spec.volumes:
        for source in volume.volumeSource.projected.sources:
            if source.HasField("serviceAccountToken"):
                audience = source.serviceAccountToken.audience
                audiences.update({audience} if audience else own)
    return audiences


def validate_token_request(token: TokenRequest) -> list[Violation]:
    seconds, field = token.spec.expirationSeconds, "spec.expirationSeconds"
    if seconds < MIN_SECONDS:
        return [Violation(field, f"Invalid value: {seconds}: may not specify a duration less than 10 minutes")]
    if seconds > MAX_SECONDS:
        return [Violation(field, f"Invalid value: {seconds}: may not specify a duration larger than 2^32 seconds")]
    return []


def make_claims(
    token: TokenRequest,
    account: ServiceAccount,
    bound: Any,
    node: ObjectId | None,
    now: int,
    credential: str,
    settings: TokenSettings,
) -> AccountClaims:
    """Return the claims of a complete request. `bound`: the object to which the token is bound, or None. `now`: Unix seconds.
    `credential`: the ID of the token."""
    seconds, warn_after = token.spec.expirationSeconds, 0
    own = set(token.spec.audiences) <= set(settings.audiences)
    if settings.extend and isinstance(bound, Pod) and seconds == EXTENDED_FROM and own:
        seconds, warn_after = EXTENDED, now + seconds
    reference = ObjectId(bound.metadata.name, bound.metadata.uid) if bound is not None else None
    return AccountClaims(
        account.metadata.namespace,
        ObjectId(account.metadata.name, account.metadata.uid),
        tuple(token.spec.audiences),
        now,
        now + seconds,
        credential,
        pod=reference if isinstance(bound, Pod) else None,
        secret=reference if bound is not None and not isinstance(bound, Pod | Node) else None,
        node=node,
        warn_after=warn_after,
    )


def _check_identity(token: TokenRequest, namespace: str, name: str) -> None:
    """Raise Rejected if the metadata belong to another service account."""
    violations = [
        Violation(f"metadata.{field}", f'Invalid value: "{given}": must match the service account {field} if specified')
        for field, given, own in (("name", token.metadata.name, name), ("namespace", token.metadata.namespace, namespace))
        if given and given != own
    ]
    if violations:
        raise Rejected(_invalid_token_request(name, violations[:1]))


def _complete_token_request(token: TokenRequest, account: ServiceAccount, settings: TokenSettings) -> None:
    """Set the defaults. Raises Rejected."""
    metadata, spec = token.metadata, token.spec
    if metadata.uid and metadata.uid != account.metadata.uid:
        text = f"the UID in the token request ({metadata.uid}) does not match the UID of the service account "
        raise Rejected(_conflict_refusal(f"{KIND}.{GROUP}", account.metadata.name, f"{text}({account.metadata.uid})"))
    if not spec.audiences:
        spec.audiences.extend(settings.audiences)
    if not spec.HasField("expirationSeconds"):
        spec.expirationSeconds = DEFAULT_SECONDS
    metadata.name, metadata.namespace = account.metadata.name, account.metadata.namespace
    metadata.uid = account.metadata.uid
    token.ClearField("status")


def _shorten_expiration(token: TokenRequest, most: int) -> None:
    asked = token.spec.expirationSeconds
    if 0 < most < asked:
        add_warnings([f"requested expiration of {asked} seconds shortened to {most} seconds"])
        token.spec.expirationSeconds = most


def _describe_type(reference: BoundObjectReference) -> str:
    group, _, version = reference.apiVersion.rpartition("/")
    return f"{group}/{version}, Kind={reference.kind}"


def _uid_conflict(given: str) -> str:
    return (
        f"the UID in the bound object reference ({given}) does not match the UID in record. The object might have been deleted "
        "and then recreated"
    )


def _error_metadata(resource: Resource[Any], name: str) -> tuple[tuple[str, str], ...]:
    return (("kind", resource.plural), ("name", name))


def _invalid_token_request(name: str, violations: list[Violation]) -> Refusal:
    message = f'{KIND}.{GROUP} "{name}" is invalid: {summarize(violations)}'
    return Refusal(Code.INVALID_ARGUMENT, "Invalid", message, violations=tuple(violations), metadata=(("name", name),))


def _conflict_refusal(kind: str, name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
    return Refusal(Code.ABORTED, "Conflict", message, metadata=((PRECONDITION_KIND, kind), ("name", name)))


def _account_forbidden(token: TokenRequest, why: str) -> Refusal:
    return errors.forbidden(f'serviceaccounts "{token.metadata.name}" is forbidden: {why}')
