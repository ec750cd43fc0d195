"""The tokens of service accounts in the volumes of pods: requested for the pod, and replaced before they expire.

    no token ------------------------------------------> request --failed--> the volume waits
    80% of its lifetime or MAX_AGE has passed ---------> request --failed--> the token is used until it expires

Source: pkg/kubelet/token/token_manager.go of Kubernetes 1.36
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import NamedTuple

from pinnace.api.authentication_v1_pb2 import TokenRequest
from pinnace.api.core_v1_pb2 import Pod, ServiceAccountTokenProjection
from pinnace.api.scalars import to_seconds
from pinnace.client.errors import ApiError

MAX_AGE = 24 * 3600.0
"""Seconds after which a token is replaced, even if it is valid for longer."""
REST = 0.2
"""The share of its lifetime that is left when a token is replaced."""
JITTER = 10.0
"""Maximum seconds by which a replacement is earlier, so that not all tokens are replaced at once."""
DEFAULT_SECONDS = 3600
TIMEOUT = 10.0
"""Maximum seconds of a request."""
RequestToken = Callable[[str, str, TokenRequest], Awaitable[TokenRequest]]
"""Requests a token of the service account with this namespace and name. Raises ApiError."""


class TokenKey(NamedTuple):
    """What distinguishes the tokens of a pod. `audience`: "" for the API server."""

    audience: str
    seconds: int

    @classmethod
    def of(cls, projection: ServiceAccountTokenProjection) -> "TokenKey":
        return cls(projection.audience, projection.expirationSeconds or DEFAULT_SECONDS)


class IssuedToken(NamedTuple):
    """Times are in Unix seconds."""

    text: str
    issued: float
    expires: float


class TokenFailure(NamedTuple):
    """Why there is no token."""

    message: str


Tokens = Mapping[TokenKey, IssuedToken | TokenFailure]


def token_keys(pod: Pod) -> Iterator[TokenKey]:
    """Yield the tokens in the volumes of a pod."""
    for volume in pod.spec.volumes:
        for source in volume.volumeSource.projected.sources:
            if source.HasField("serviceAccountToken"):
                yield TokenKey.of(source.serviceAccountToken)


def is_due(token: IssuedToken, now: float, jitter: float) -> bool:
    """Report whether a token should be replaced. `now` is Unix time. `jitter`: seconds by which it is earlier."""
    rest = REST * (token.expires - token.issued)
    return now > min(token.issued + MAX_AGE, token.expires - rest) - jitter


def token_request(pod: Pod, key: TokenKey) -> TokenRequest:
    request = TokenRequest()
    if key.audience:
        request.spec.audiences.append(key.audience)
    request.spec.expirationSeconds = key.seconds
    bound = request.spec.boundObjectRef
    bound.apiVersion, bound.kind = "v1", "Pod"
    bound.name, bound.uID = pod.metadata.name, pod.metadata.uid
    return request


class PodTokens:
    """The tokens of one pod. `random` returns a number from 0 to 1."""

    def __init__(self, request: RequestToken, random: Callable[[], float]) -> None:
        self._request = request
        self._random = random
        self.current: dict[TokenKey, IssuedToken | TokenFailure] = {}

    async def renew(self, pod: Pod, now: float) -> None:
        """Request the tokens that are missing or due. If that fails, tokens are used until they expire."""
        for key in dict.fromkeys(token_keys(pod)):
            token = self.current.get(key)
            if isinstance(token, IssuedToken) and not is_due(token, now, JITTER * self._random()):
                continue
            try:
                async with asyncio.timeout(TIMEOUT):
                    answer = await self._request(pod.metadata.namespace, pod.spec.serviceAccountName, token_request(pod, key))
            except (ApiError, TimeoutError) as error:
                if not isinstance(token, IssuedToken) or now >= token.expires:
                    self.current[key] = TokenFailure(str(error) or f"timed out after {TIMEOUT:g} s")
                continue
            expires = to_seconds(answer.status.expirationTimestamp)
            self.current[key] = IssuedToken(answer.status.token, expires - answer.spec.expirationSeconds, expires)
