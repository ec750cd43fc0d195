"""How a machine joins a cluster by a token, as with kubeadm.

    first machine                                       new machine
    pinnace token create --> Secret bootstrap-token-ID
    pinnace signer  <-- 1. GET /cluster-info, unverified --- pinnace join     the authority must have the pinned key
                    <-- 2. POST /sign: token, request ------                  over TLS that this authority verifies
                    --- certificate of system:node:NAME --->                  its private key never leaves the machine

The token is an object of the cluster: a Secret in kube-system of the type bootstrap.kubernetes.io/token, with Kubernetes' keys.
It is valid until its expiration, which the signer checks at each request, and for the group of new nodes only. An expired token
is deleted, as by Kubernetes' tokencleaner.

The signer is the only process that reads the key of the authority, and needs to run only while machines join. It signs
certificates of fleets, for names of which the cluster has no node and no certificate: a token cannot take over a node.

Source: https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/ and
https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/
"""

import asyncio
import hmac
import json
import logging
import ssl
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

from pinnace.api.core_v1_pb2 import ConfigMap, Secret
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.names import NodeNames
from pinnace.api.resources import CONFIG_MAPS, SECRETS, SYSTEM_NAMESPACE
from pinnace.api.scalars import format_rfc3339, parse_rfc3339, to_datetime, to_time
from pinnace.client.client import Client
from pinnace.client.errors import AlreadyExists, ApiError, NotFound
from pinnace.cluster import certificates
from pinnace.pki import CertificatePair
from pinnace.pki.authority import SERVER_NAME
from pinnace.pki.bootstrap import BootstrapToken, check_certificate, create_request, is_pinned, node_subject, parse_request
from pinnace.pki.folder import APISERVER, PkiFolder
from pinnace.runtime.http import format_address

log = logging.getLogger(__name__)

SECRET_TYPE = "bootstrap.kubernetes.io/token"
SECRET_PREFIX = "bootstrap-token-"
JOIN_GROUP = "system:bootstrappers:kubeadm:default-node-token"
"""The group of tokens for new nodes."""
PUBLIC_NAMESPACE, CLUSTER_INFO = "kube-public", "cluster-info"
"""The ConfigMap with the address of the signer, the authority, and the addresses of the API servers."""
DEFAULT_TTL = timedelta(hours=24)
MAX_BODY = 16 << 10
REFUSAL_DELAY = 0.2
"""Seconds that a refusal takes. Refusals wait for each other, so that tokens cannot be guessed."""
JOIN_TIMEOUT = 20.0
"""Maximum seconds of one request of a new machine."""
_ID, _SECRET, _EXPIRATION, _GROUPS, _DESCRIPTION = (
    "token-id",
    "token-secret",
    "expiration",
    "auth-extra-groups",
    "description",
)
_AUTHENTICATION, _SIGNING = "usage-bootstrap-authentication", "usage-bootstrap-signing"


class JoinError(Exception):
    """The machine cannot join. The text says why; `hint`, what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class StoredToken(NamedTuple):
    """A token of the cluster."""

    token: BootstrapToken
    expires: datetime | None
    """None: never."""
    usages: Sequence[str]
    groups: Sequence[str]
    description: str

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now


def token_secret(token: BootstrapToken, expires: datetime | None, description: str) -> Secret:
    """Return the Secret of a token that lets nodes join. `expires`: None for a token that never expires."""
    data = {_ID: token.id, _SECRET: token.secret, _AUTHENTICATION: "true", _SIGNING: "true", _GROUPS: JOIN_GROUP}
    if expires is not None:
        data[_EXPIRATION] = format_rfc3339(to_time(int(expires.timestamp())))
    if description:
        data[_DESCRIPTION] = description
    metadata = ObjectMeta(namespace=SYSTEM_NAMESPACE, name=f"{SECRET_PREFIX}{token.id}")
    return Secret(metadata=metadata, type=SECRET_TYPE, data={key: value.encode() for key, value in data.items()})


def read_token(secret: Secret) -> StoredToken:
    """Raises ValueError if the Secret is not a valid token."""
    data = {key: value.decode(errors="replace") for key, value in secret.data.items()}
    token = BootstrapToken.parse(f"{data.get(_ID, '')}.{data.get(_SECRET, '')}")
    if secret.type != SECRET_TYPE or secret.metadata.name != f"{SECRET_PREFIX}{token.id}":
        raise ValueError(f"the Secret {secret.metadata.name} is not a bootstrap token")
    given = data.get(_EXPIRATION, "")
    expires = to_datetime(parse_rfc3339(given)) if given else None
    usages = [name for name, key in (("authentication", _AUTHENTICATION), ("signing", _SIGNING)) if data.get(key) == "true"]
    groups = [group for group in data.get(_GROUPS, "").split(",") if group]
    return StoredToken(token, expires, usages, groups, data.get(_DESCRIPTION, ""))


class ClusterInfo(NamedTuple):
    """What a new machine needs to know. All of it is public."""

    signer: str
    """HOST:PORT."""
    ca: bytes
    """The certificate of the authority, PEM."""
    servers: Sequence[str]
    """The API servers, HOST:PORT."""

    def encode(self) -> dict[str, str]:
        return {"signer": self.signer, "ca.crt": self.ca.decode(), "servers": ",".join(self.servers)}

    @classmethod
    def decode(cls, data: Any) -> "ClusterInfo":
        """Raises ValueError."""
        try:
            return cls(str(data["signer"]), data["ca.crt"].encode(), tuple(data["servers"].split(",")))
        except (KeyError, TypeError, AttributeError):
            raise ValueError("it is no description of a cluster") from None


class Signer:
    """The HTTPS server on the machine with the key of the authority."""

    def __init__(self, folder: Path, client: Client, info: ClusterInfo) -> None:
        """Raises OSError and ValueError if the folder has no authority."""
        self._folder = folder
        self._client = client
        self._info = info
        self._authority = PkiFolder(folder).authority()
        self._refusing = asyncio.Lock()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=MAX_BODY)
        application.add_routes([web.get("/cluster-info", self._answer_info), web.post("/sign", self._sign)])
        return application

    async def publish(self) -> None:
        """Write the ConfigMap `cluster-info`, as kubeadm does. Raises ApiError."""
        maps = self._client.of(CONFIG_MAPS)
        wanted = ConfigMap(metadata=ObjectMeta(namespace=PUBLIC_NAMESPACE, name=CLUSTER_INFO), data=self._info.encode())
        try:
            await maps.create(wanted)
        except AlreadyExists:
            current = await maps.get(CLUSTER_INFO, PUBLIC_NAMESPACE)
            if dict(current.data) != dict(wanted.data):
                current.data.clear()
                current.data.update(wanted.data)
                await maps.update(current)

    async def _answer_info(self, request: web.Request) -> web.Response:
        return web.json_response(self._info.encode())

    async def _sign(self, request: web.Request) -> web.Response:
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        try:
            if scheme.lower() != "bearer" or not await self._is_accepted(text.strip()):
                return await self._refuse(401, "the token is unknown or has expired", request)
            signing = parse_request(await request.read())
            if reason := await self._find_conflict(signing.name):
                return await self._refuse(409, reason, request)
        except ValueError as error:
            return await self._refuse(400, str(error), request)
        except ApiError as error:
            return await self._refuse(503, f"the API servers cannot be asked: {error}", request)
        certificate = self._authority.certify(
            signing.public_key, node_subject(signing.name), datetime.now(UTC), hosts=(SERVER_NAME,)
        )
        log.info("signed the certificate of %s for %s, with the token %s", signing.name, request.remote, text.strip()[:6])
        return web.json_response({"certificate": certificate.decode()})

    async def _is_accepted(self, text: str) -> bool:
        """Whether the token is one of the cluster, for new nodes, and has not expired. Raises ApiError."""
        try:
            token = BootstrapToken.parse(text)
            secret = await self._client.of(SECRETS).get(f"{SECRET_PREFIX}{token.id}", SYSTEM_NAMESPACE)
            stored = read_token(secret)
        except (ValueError, NotFound):
            return False
        if not hmac.compare_digest(str(stored.token), str(token)):
            return False
        if stored.is_expired(datetime.now(UTC)):
            await self._client.of(SECRETS).delete(secret.metadata.name, SYSTEM_NAMESPACE)
            return False
        return "authentication" in stored.usages and JOIN_GROUP in stored.groups

    async def _find_conflict(self, name: str) -> str:
        """Return why the cluster cannot have a fleet of this name; "" if it can. Raises ApiError."""
        if (self._folder / f"{name}.crt").exists():
            return f'"{name}" has a certificate of `pinnace pki`: choose another --node-name'
        names = NodeNames.parse(node_subject(name).nodes)
        for node in (await self._client.nodes.list()).items:
            if node.metadata.name in names:
                return (
                    f'the node "{node.metadata.name}" exists: choose another --node-name, or delete the nodes of the earlier '
                    f"machine with `kubectl delete node`"
                )
        return ""

    async def _refuse(self, code: int, message: str, request: web.Request) -> web.Response:
        async with self._refusing:
            await asyncio.sleep(REFUSAL_DELAY)
        log.warning("refused %s: %s", request.remote, message)
        return web.json_response({"message": message}, status=code)


async def serve_signer(stop: asyncio.Event, signer: Signer, folder: Path, address: tuple[str, int]) -> None:
    """Serve until `stop` is set. Raises OSError, ApiError."""
    files = certificates.component_files(folder, APISERVER)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(str(files.cert), str(files.key))
    runner = web.AppRunner(signer.application(), access_log=None, keepalive_timeout=5)
    await runner.setup()
    try:
        await web.TCPSite(runner, *address, ssl_context=context).start()
        await signer.publish()
        log.info("signer on %s", format_address(address))
        await stop.wait()
    finally:
        await runner.cleanup()


async def join_cluster(signer: str, token: BootstrapToken, pins: Collection[str], name: str, folder: Path) -> ClusterInfo:
    """Get a certificate for the fleet `name`, and write it with its key and kubeconfig to the folder. Nothing is written unless
    the certificate is valid for the key. Raises JoinError, OSError.
    """
    async with aiohttp.ClientSession(f"https://{signer}", timeout=aiohttp.ClientTimeout(total=JOIN_TIMEOUT)) as session:
        info = await _discover_cluster(session, signer, pins)
        key, request = create_request(name)
        context = ssl.create_default_context(cadata=info.ca.decode())
        answer = await _call(session.post("/sign", data=request, headers={"Authorization": f"Bearer {token}"}, ssl=context))
    certificate = str(answer.get("certificate", "")).encode()
    try:
        check_certificate(certificate, key, info.ca)
        certificates.write_joined(folder, name, info.ca, CertificatePair(certificate, key), info.servers)
    except ValueError as error:
        raise JoinError(f"the signer at {signer} has sent an invalid certificate: {error}") from None
    return info


async def _discover_cluster(session: aiohttp.ClientSession, signer: str, pins: Collection[str]) -> ClusterInfo:
    """Return the description of the cluster, of which the pin proves the authority. Raises JoinError."""
    try:
        info = ClusterInfo.decode(await _call(session.get("/cluster-info", ssl=False)))
        pinned = is_pinned(info.ca, pins)
    except ValueError as error:
        raise JoinError(f"{signer} is not a signer: {error}", "name the address of `pinnace signer`") from None
    if not pinned:
        raise JoinError(
            f"the certificate authority of {signer} has none of the given hashes: it is another cluster, or somebody answers "
            "for it",
            "`pinnace token create --print-join-command` prints the hash",
        )
    return info


async def _call(call: Any) -> Mapping[str, Any]:
    """Return the JSON object of an answer. Raises JoinError."""
    try:
        async with call as response:
            answer = await response.json(content_type=None)
            if response.status == 200 and isinstance(answer, dict):
                return answer
            message = answer.get("message", "") if isinstance(answer, dict) else ""
            raise JoinError(f"the signer refuses: {message or response.reason}")
    except aiohttp.ClientConnectorCertificateError as error:
        raise JoinError(f"the signer has no certificate of the pinned authority: {error.certificate_error}") from None
    except (aiohttp.ClientError, TimeoutError, json.JSONDecodeError, UnicodeDecodeError) as error:
        text = str(error) or "no answer in time"
        raise JoinError(f"the signer cannot be reached: {text}", "check the address, and that `pinnace signer` runs") from None
