"""Tokens of service accounts: JSON Web Tokens that the cluster signs.

    TokenKeys: signs and verifies              claims_of_token: the claims, or ValueError
        '--signature, issuer--> AccountClaims --account, pod, secret, node exist with these UIDs--> User
                                              --time, audiences------------------------------'

A signature is verified once, and the claims are remembered. Time and objects are checked for each call, so a token is invalid
as soon as this server has received the deletion of its account or of the object to which it is bound.

The token of a Secret has no expiry and no audience. It is valid as long as the Secret contains it.

Source: https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/, and pkg/serviceaccount of Kubernetes
1.36 (claims.go, legacy.go, jwt.go) for the claims and the rules.
"""

import base64
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from pinnace.api.core_v1_pb2 import Node, Pod, Secret, ServiceAccount
from pinnace.api.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Object, Resource
from pinnace.api.scalars import to_seconds
from pinnace.api.users import AUTHENTICATED, service_account_groups, service_account_user
from pinnace.apiserver.auth.authentication import CHECK_INTERVAL, TokenAuthenticator, User
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

DEFAULT_ISSUER = "https://kubernetes.default.svc.cluster.local"
LEGACY_ISSUER = "kubernetes/serviceaccount"
"""The claim `iss` of the token of a Secret."""
LEEWAY = 60
"""Seconds by which the clock of the issuer may differ, and for which an object is valid after its grace period."""
MAX_REMEMBERED = 10_000
"""Maximum number of tokens whose claims are remembered."""
MAX_TOKEN = 4096
"""Maximum length of a token in characters."""
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
POD_NAME, POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
NODE_NAME, NODE_UID = "authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid"
_PRIVATE = "kubernetes.io"
_LEGACY = "kubernetes.io/serviceaccount/"
TOKEN_KEY = "token"
"""The key of a Secret that contains its token."""

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
log = logging.getLogger(__name__)
_SIGNATURE_ONLY: Any = {
    f"verify_{claim}": claim == "signature" for claim in ("signature", "exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}
_INVALIDATED = "service account token has been invalidated"


class ObjectId(NamedTuple):
    """The name and UID of an object. `uid` is "" if it is unknown."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class AccountClaims:
    """The claims of a token. Times are in Unix seconds; `expires` is None for the token of a Secret."""

    namespace: str
    account: ObjectId
    audiences: tuple[str, ...] = ()
    issued: int = 0
    expires: int | None = None
    id: str = ""
    pod: ObjectId | None = None
    secret: ObjectId | None = None
    node: ObjectId | None = None
    warn_after: int = 0
    """From this time on, the client should have replaced the token; 0: never."""

    def user(self) -> User:
        """Return the user of the token."""
        extra = [(CREDENTIAL_ID, f"JTI={self.id}")] if self.id else []
        for names, bound in (((POD_NAME, POD_UID), self.pod), ((NODE_NAME, NODE_UID), self.node)):
            extra += [(key, value) for key, value in zip(names, bound or (), strict=False) if value]
        groups = (*service_account_groups(self.namespace), AUTHENTICATED)
        name = service_account_user(self.namespace, self.account.name)
        return User(name, groups, uid=self.account.uid, extra=tuple((key, (value,)) for key, value in extra))


def encode_claims(claims: AccountClaims, issuer: str) -> dict[str, Any]:
    """Return the claims of a bound token in Kubernetes' form."""
    bound = {"node": claims.node, "pod": claims.pod, "secret": claims.secret, "serviceaccount": claims.account}
    private: dict[str, Any] = {"namespace": claims.namespace}
    for kind, reference in bound.items():
        if reference is not None:
            private[kind] = {"name": reference.name} | ({"uid": reference.uid} if reference.uid else {})
    if claims.warn_after:
        private["warnafter"] = claims.warn_after
    return {
        "aud": list(claims.audiences),
        "exp": claims.expires,
        "iat": claims.issued,
        "iss": issuer,
        "jti": claims.id,
        _PRIVATE: private,
        "nbf": claims.issued,
        "sub": service_account_user(claims.namespace, claims.account.name),
    }


def encode_legacy_claims(namespace: str, account: ObjectId, secret: str) -> dict[str, Any]:
    """Return the claims of the token of a Secret."""
    return {
        "iss": LEGACY_ISSUER,
        f"{_LEGACY}namespace": namespace,
        f"{_LEGACY}secret.name": secret,
        f"{_LEGACY}service-account.name": account.name,
        f"{_LEGACY}service-account.uid": account.uid,
        "sub": service_account_user(namespace, account.name),
    }


def decode_claims(data: Mapping[str, Any], issuer: str) -> AccountClaims:
    """Return the claims of a token with a valid signature. Raises ValueError."""
    if data.get("iss") == LEGACY_ISSUER:
        claims = AccountClaims(
            _read_text(data, f"{_LEGACY}namespace"),
            ObjectId(_read_text(data, f"{_LEGACY}service-account.name"), _read_text(data, f"{_LEGACY}service-account.uid")),
            secret=ObjectId(_read_text(data, f"{_LEGACY}secret.name"), ""),
        )
    elif data.get("iss") == issuer:
        private = data.get(_PRIVATE)
        if not isinstance(private, Mapping):
            raise ValueError("the token has no private claims")
        account = _read_reference(private, "serviceaccount")
        if account is None:
            raise ValueError("the token has no service account")
        audiences = data.get("aud")
        claims = AccountClaims(
            _read_text(private, "namespace"),
            account,
            tuple(map(str, audiences)) if isinstance(audiences, list) else (str(audiences),) if audiences else (),
            _read_number(data, "nbf"),
            _read_number(data, "exp"),
            str(data.get("jti", "")),
            _read_reference(private, "pod"),
            _read_reference(private, "secret"),
            _read_reference(private, "node"),
            _read_number(private, "warnafter") if "warnafter" in private else 0,
        )
    else:
        raise ValueError("the token has another issuer")
    if data.get("sub") != service_account_user(claims.namespace, claims.account.name):
        raise ValueError("the subject of the token is not its service account")
    return claims


def _read_text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"the token has no {name}")
    return value


def _read_number(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    if not isinstance(value, int | float):
        raise ValueError(f"the token has no {name}")
    return int(value)


def _read_reference(private: Mapping[str, Any], kind: str) -> ObjectId | None:
    value = private.get(kind)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError(f"invalid claim {kind}")
    return ObjectId(_read_text(value, "name"), str(value.get("uid", "")))


class VerifyingKey(NamedTuple):
    id: str
    algorithm: str
    key: PublicKey

    @classmethod
    def from_public_key(cls, key: Any) -> "VerifyingKey":
        """Raises ValueError for other keys than RSA, P-256, P-384 and P-521. The ID is the digest of the public key, as in
        Kubernetes."""
        match key:
            case rsa.RSAPublicKey():
                algorithm = "RS256"
            case ec.EllipticCurvePublicKey(curve=ec.SECP256R1()):
                algorithm = "ES256"
            case ec.EllipticCurvePublicKey(curve=ec.SECP384R1()):
                algorithm = "ES384"
            case ec.EllipticCurvePublicKey(curve=ec.SECP521R1()):
                algorithm = "ES512"
            case _:
                raise ValueError("expected a key of RSA, or of the curve P-256, P-384 or P-521")
        digest = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
        return cls(base64.urlsafe_b64encode(digest).decode().rstrip("="), algorithm, key)

    def jwk(self) -> dict[str, Any]:
        """Return the JSON Web Key."""
        if isinstance(self.key, rsa.RSAPublicKey):
            parameters = RSAAlgorithm.to_jwk(self.key, as_dict=True)
        else:
            parameters = ECAlgorithm.to_jwk(self.key, as_dict=True)
        parameters.pop("key_ops", None)
        return {"use": "sig", "kid": self.id, "alg": self.algorithm} | parameters


class TokenKeys:
    """The key that signs, and all keys that verify. The signing key verifies, too."""

    def __init__(self, signing: PrivateKey, verifying: Collection[PublicKey] = ()) -> None:
        """Raises ValueError for keys of another type."""
        self._signing = signing
        own = VerifyingKey.from_public_key(signing.public_key())
        self._id, self._algorithm = own.id, own.algorithm
        keys = (own, *map(VerifyingKey.from_public_key, verifying))
        self.verifying: Mapping[str, VerifyingKey] = {key.id: key for key in keys}

    def sign(self, claims: Mapping[str, Any]) -> str:
        return jwt.encode(dict(claims), self._signing, self._algorithm, {"kid": self._id, "typ": None})

    def verify(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token with a valid signature. Times and audiences are not checked. Raises ValueError."""
        try:
            key = self.verifying.get(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                raise ValueError("unknown signing key")
            claims: Mapping[str, Any] = jwt.decode(token, key.key, [key.algorithm], _SIGNATURE_ONLY)
            return claims
        except (jwt.PyJWTError, RecursionError, TypeError) as error:
            raise ValueError(f"invalid token: {error}") from None

    def json_web_key_set(self) -> bytes:
        """Return the JSON Web Key Set."""
        return json.dumps({"keys": [key.jwk() for key in self.verifying.values()]}, separators=(",", ":")).encode()


def read_token_keys(signing: Path, verifying: Sequence[Path]) -> TokenKeys:
    """Read PEM files. A file of `verifying` can contain several public keys, and a private key instead of a public one. Raises
    OSError and ValueError."""
    private = load_pem_private_key(signing.read_bytes(), password=None)
    if not isinstance(private, PrivateKey):
        raise ValueError(f"{signing}: expected a private key of RSA or an elliptic curve")
    return TokenKeys(private, [key for path in verifying for key in _read_public_keys(path)])


def _read_public_keys(path: Path) -> list[PublicKey]:
    keys: list[Any] = []
    for block in _pem_blocks(path.read_text()):
        data = block.encode()
        keys.append(load_pem_private_key(data, password=None).public_key() if "PRIVATE" in block else load_pem_public_key(data))
    return keys


def _pem_blocks(text: str) -> list[str]:
    blocks, lines = list[str](), list[str]()
    for line in text.splitlines():
        lines = [line] if line.startswith("-----BEGIN ") else [*lines, line]
        if line.startswith("-----END "):
            blocks.append("\n".join((*lines, "")))
    return blocks


class TokenKeyFiles:
    """The keys of files, which are read again after each change. If they cannot be read, the previous keys remain in use."""

    def __init__(self, signing: Path, verifying: Sequence[Path], clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises OSError and ValueError if the files cannot be read."""
        self._signing, self._verifying = signing, verifying
        self._clock = clock
        self._checked_at = clock.monotonic()
        self._versions = self._file_versions()
        self._keys = read_token_keys(signing, verifying)

    def current(self) -> TokenKeys:
        if (now := self._clock.monotonic()) - self._checked_at >= CHECK_INTERVAL:
            self._checked_at = now
            self._refresh()
        return self._keys

    def _refresh(self) -> None:
        try:
            if (versions := self._file_versions()) != self._versions:
                self._versions, self._keys = versions, read_token_keys(self._signing, self._verifying)
                log.info("reloaded the keys of service account tokens: %d", len(self._keys.verifying))
        except (OSError, ValueError) as error:
            log.error("cannot read the keys of service account tokens, keeping the previous keys: %s", error)

    def _file_versions(self) -> Sequence[tuple[int, int]]:
        return [((status := path.stat()).st_mtime_ns, status.st_ino) for path in (self._signing, *self._verifying)]


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """`keys` returns the present keys. `audiences` are those of the API server. `max_seconds`: the maximum lifetime of a token
    in seconds; 0: no maximum. `extend`: tokens that kubelets request for pods are valid for a year, as in Kubernetes."""

    keys: Callable[[], TokenKeys]
    issuer: str = DEFAULT_ISSUER
    audiences: tuple[str, ...] = (DEFAULT_ISSUER,)
    max_seconds: int = 0
    extend: bool = True
    jwks_uri: str = ""
    """The address of the keys for verifiers; "": that of the gateway."""
    root_ca: bytes = b""
    """The PEM certificates that clients in pods trust, for the Secrets of tokens."""


class InvalidToken(Exception):
    """The token is invalid. The text of the error is the reason, for reviewers."""


class UnsignedToken(InvalidToken):
    """The cluster has not signed the token. The error has no text."""


class ReviewedToken(NamedTuple):
    user: User
    audiences: tuple[str, ...]
    """Those of the requested audiences that accept the token."""


class AccountTokenAuthenticator:
    """Authenticates tokens of service accounts by the watch caches."""

    def __init__(
        self,
        settings: TokenSettings,
        accounts: ResourceCache[ServiceAccount],
        pods: ResourceCache[Pod],
        secrets: ResourceCache[Secret],
        nodes: ResourceCache[Node],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._accounts, self._pods, self._secrets, self._nodes = accounts, pods, secrets, nodes
        self._clock = clock
        self.audiences = settings.audiences
        self._verified: OrderedDict[bytes, tuple[TokenKeys, AccountClaims, User]] = OrderedDict()
        """By the digest of the token."""

    def user(self, token: str) -> User | None:
        """Return the user of a token for the API server."""
        try:
            return self.review(token, ()).user
        except InvalidToken:
            return None

    def review(self, token: str, audiences: Collection[str]) -> ReviewedToken:
        """Return the user of a token that one of the audiences accepts (default: the API server). Raises InvalidToken."""
        claims, user = self._verify_token(token)
        own = self._settings.audiences
        accepting = claims.audiences or own
        matching = tuple(audience for audience in audiences or own if audience in accepting)
        if not matching:
            requested = _quote(audiences or own)
            raise InvalidToken(f"token audiences {_quote(accepting)} is invalid for the target audiences {requested}")
        self._check_claims(claims, token)
        return ReviewedToken(user, matching)

    def _check_claims(self, claims: AccountClaims, token: str) -> None:
        """Raise InvalidToken unless a token with a valid signature is valid now: its times, its account, and the object to
        which it is bound."""
        now, namespace = self._clock.time(), claims.namespace
        if claims.expires is not None and now > claims.expires + LEEWAY:
            raise InvalidToken("service account token has expired")
        if now < claims.issued - LEEWAY:
            raise InvalidToken("service account token is not valid yet")
        if not self._object_exists(SERVICE_ACCOUNTS, self._accounts, namespace, claims.account, now):
            raise InvalidToken(_INVALIDATED)
        if claims.secret is not None:
            if not self._object_exists(SECRETS, self._secrets, namespace, claims.secret, now):
                raise InvalidToken(_INVALIDATED)
            if claims.expires is None and not self._contains_token(namespace, claims.secret.name, token):
                raise InvalidToken("service account token doesn't match server's copy")
        if claims.pod is not None:
            bound = self._object_exists(PODS, self._pods, namespace, claims.pod, now)
        else:
            bound = claims.node is None or self._object_exists(NODES, self._nodes, "", claims.node, now)
        if not bound:
            raise InvalidToken(_INVALIDATED)

    def _verify_token(self, token: str) -> tuple[AccountClaims, User]:
        """Raises UnsignedToken."""
        if len(token) > MAX_TOKEN or token.count(".") != 2:
            raise UnsignedToken
        keys, digest = self._settings.keys(), hashlib.sha256(token.encode(errors="replace")).digest()
        remembered = self._verified.get(digest)
        if remembered is not None and remembered[0] is keys:
            return remembered[1:]
        try:
            claims = decode_claims(keys.verify(token), self._settings.issuer)
        except ValueError:
            raise UnsignedToken from None
        user = claims.user()
        self._verified[digest] = keys, claims, user
        if len(self._verified) > MAX_REMEMBERED:
            self._verified.popitem(last=False)
        return claims, user

    def _object_exists(
        self, resource: Resource[Any], cache: ResourceCache[Any], namespace: str, reference: ObjectId, now: float
    ) -> bool:
        entry = cache.get(resource.key(namespace, reference.name))
        if entry is None:
            return False
        obj: Object = entry.obj
        metadata = obj.metadata
        if metadata.HasField("deletionTimestamp") and to_seconds(metadata.deletionTimestamp) < now - LEEWAY:
            return False
        return not reference.uid or metadata.uid == reference.uid

    def _contains_token(self, namespace: str, name: str, token: str) -> bool:
        entry = self._secrets.get(SECRETS.key(namespace, name))
        return entry is not None and entry.obj.data.get(TOKEN_KEY, b"") == token.encode()


def _quote(audiences: Collection[str]) -> str:
    """Return a list in the form of Go's %q."""
    return "[" + " ".join(json.dumps(audience) for audience in audiences) + "]"


class UnionTokenAuthenticator:
    """The tokens of all authenticators, in this order."""

    def __init__(self, *authenticators: TokenAuthenticator) -> None:
        self._authenticators = authenticators

    def user(self, token: str) -> User | None:
        return next((user for item in self._authenticators if (user := item.user(token)) is not None), None)
