"""The connections to one webhook, and the errors of its calls, by aiohttp.

The certificate of the target must be signed by the authorities of its caBundle, or by those of the system without a caBundle.
Redirects are not followed, responses are not decompressed, and proxy settings of the environment are ignored.

Error texts have the form of Go's HTTP client, as far as the facts are known.

Source: pkg/util/webhook/client.go of k8s.io/apiserver 1.36.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from pinnace.apiserver.webhooks.client import (
    CONNECTION_BURST,
    CONNECTION_RATE,
    LARGE_RATE,
    MAX_CONNECTIONS,
    MAX_RESPONSE,
    SMALL_RESPONSE,
    BufferBudget,
    CallRateLimiter,
    ConnectFailed,
    NameResolver,
    NoEndpoint,
    ResolveService,
    ServiceTarget,
    WebhookCallError,
    WebhookTarget,
    shown_url,
)

IDLE_TIMEOUT = 60.0
"""Seconds after which an unused connection is closed."""
MAX_STATUS_MESSAGE = 4000
"""In characters."""
_CHUNK = 64 << 10
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, */*", "Accept-Encoding": "identity"}
_CONTENT_ENCODING = "Content-Encoding"
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
"""OpenSSL's verify codes for certificates whose authority is not trusted."""
_EXPIRED, _NOT_YET_VALID = 10, 9
_MISMATCH = (62, 64)
"""OpenSSL's verify codes for another host name or IP address."""
_STATUS_TEXTS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "the server does not allow access to the requested resource",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    409: "the server reported a conflict",
    410: "the server no longer has the requested resource",
    413: "the server has received a request that is too large",
    415: "the body of the request was in an unknown format",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
"""Messages by HTTP status code. Source: NewGenericServerResponse in pkg/api/errors of k8s.io/apimachinery."""


class TargetConnections:
    """Create it in the event loop that uses it."""

    def __init__(
        self,
        target: WebhookTarget,
        context: ssl.SSLContext,
        resolve_service: ResolveService,
        names: NameResolver,
        budget: BufferBudget,
    ) -> None:
        self._target = target
        self._budget = budget
        self._connections = CallRateLimiter(CONNECTION_RATE, CONNECTION_BURST)
        self._large = CallRateLimiter(LARGE_RATE, SMALL_RESPONSE)
        resolver: AbstractResolver = _NamesResolver(names)
        if target.service is not None:
            resolver = _ServiceResolver(target.service, resolve_service, resolver)
        connector = aiohttp.TCPConnector(
            ssl=context,
            limit=MAX_CONNECTIONS,
            resolver=resolver,
            use_dns_cache=False,
            keepalive_timeout=IDLE_TIMEOUT,
        )
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_start.append(self._pace_connection)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            trace_configs=[tracing],
        )

    async def post(self, body: bytes, timeout: float) -> bytes:
        """Send JSON and return the body of the response. `timeout`: in seconds, for the URL. Raises WebhookCallError."""
        try:
            return await self._send_request(body, timeout)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if isinstance(error, aiohttp.ClientConnectorError):
                raise ConnectFailed(self._describe_post_error(error, timeout)) from None
        except (aiohttp.ClientError, OSError, ValueError, NoEndpoint) as error:
            raise WebhookCallError(self._describe_post_error(error, timeout)) from None
        try:  # the target has closed a connection that was in use before: try once more
            return await self._send_request(body, timeout)
        except (aiohttp.ClientError, OSError, ValueError, NoEndpoint) as error:
            raise WebhookCallError(self._describe_post_error(error, timeout)) from None

    async def close(self) -> None:
        await self._session.close()

    async def _pace_connection(self, session: aiohttp.ClientSession, context: Any, params: Any) -> None:
        await self._connections.wait()

    async def _send_request(self, body: bytes, timeout: float) -> bytes:
        call = self._session.post(
            self._target.url,
            params={"timeout": f"{timeout:g}s"},
            data=body,
            headers=_HEADERS,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        async with call as response:
            if response.headers.get(_CONTENT_ENCODING, "identity").lower() != "identity":
                raise WebhookCallError("the response is compressed, although the request does not allow it", 500)
            content = await self._read_body(response)
            if not 200 <= response.status <= 206:
                raise WebhookCallError(_describe_status(response.status, content), response.status)
            return content

    async def _read_body(self, response: aiohttp.ClientResponse) -> bytes:
        chunks, size, budget = list[bytes](), 0, self._budget
        try:
            while chunk := await response.content.read(_CHUNK):
                size += len(chunk)
                budget.free -= len(chunk)
                chunks.append(chunk)
                if size > SMALL_RESPONSE:
                    await self._large.wait(len(chunk))
                if size > MAX_RESPONSE:
                    raise WebhookCallError(f"the response has more than {MAX_RESPONSE:,} bytes", 500)
                if budget.free < 0:
                    raise WebhookCallError("too many large responses of webhooks at once", 500)
        finally:
            budget.free += size
        return b"".join(chunks)

    def _describe_post_error(self, error: Exception, timeout: float) -> str:
        return f'Post "{shown_url(self._target, timeout)}": {describe_client_error(error)}'


def tls_context(ca_bundle: bytes) -> ssl.SSLContext:
    """Raises WebhookCallError if the bundle contains no certificate."""
    try:
        context = _context_of(ca_bundle)
    except (ssl.SSLError, ValueError):
        problem = "unable to load root certificates: unable to parse bytes as PEM block"
        raise WebhookCallError(problem, 500) from None
    return context


def _context_of(ca_bundle: bytes) -> ssl.SSLContext:
    """Raises ssl.SSLError, ValueError."""
    if ca_bundle:
        context = ssl.create_default_context(cadata=ca_bundle.decode("ascii"))
        if not context.get_ca_certs() and not context.cert_store_stats()["x509"]:
            raise ValueError("no certificates")
    else:
        context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # like Go, trust every certificate of the bundle
    context.set_alpn_protocols(["http/1.1"])
    return context


def describe_client_error(error: Exception) -> str:
    """Return Go's text of an error of aiohttp."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return _describe_certificate_error(error)
        case aiohttp.ClientConnectorSSLError():
            if error.os_error.reason == "WRONG_VERSION_NUMBER":
                return "http: server gave HTTP response to HTTPS client"
            return f"tls: {str(getattr(error.os_error, 'reason', error.os_error)).lower().replace('_', ' ')}"
        case aiohttp.ClientConnectorDNSError():
            return f"dial tcp: lookup {error.host}: no such host"
        case aiohttp.ClientConnectorError():
            reason = error.os_error.strerror or str(error.os_error)
            if error.os_error.errno is not None:
                reason = _describe_errno(error.os_error)
            return f"dial tcp {_format_address(error.host, error.port)}: connect: {reason}"
        case aiohttp.ServerDisconnectedError():
            return "EOF"
        case aiohttp.ClientPayloadError():
            return "unexpected EOF"
        case aiohttp.ClientResponseError():
            return f"malformed HTTP response: {error.message}"
        case OSError():
            return _describe_errno(error)
        case _:
            return str(error) or type(error).__name__


def _describe_errno(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else str(error)


def _format_address(host: str, port: int | None) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _describe_certificate_error(error: aiohttp.ClientConnectorCertificateError) -> str:
    inner: Any = error.certificate_error
    code, message = getattr(inner, "verify_code", None), getattr(inner, "verify_message", str(inner))
    if code in _UNKNOWN_AUTHORITY:
        reason = "certificate signed by unknown authority"
    elif code in (_EXPIRED, _NOT_YET_VALID):
        reason = f"certificate has expired or is not yet valid: {message}"
    elif code in _MISMATCH:
        reason = f"certificate is not valid for {error.host}"
    else:
        reason = str(message)
    return f"tls: failed to verify certificate: x509: {reason}"


def _describe_status(code: int, content: bytes) -> str:
    if message := _read_status_message(content):
        return message
    if code in _STATUS_TEXTS:
        return _STATUS_TEXTS[code]
    if code >= 500:
        shown = content[:1024].decode(errors="replace").strip()
        quoted = shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'an error on the server ("{quoted or "unknown"}") has prevented the request from succeeding'
    return f"the server responded with the status code {code} but did not return more information"


def _read_status_message(content: bytes) -> str:
    """Return the message of a Status object of Kubernetes; "" if the content is something else."""
    if len(content) > SMALL_RESPONSE:
        return ""
    try:
        status = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(status, dict) or status.get("status") != "Failure" or status.get("kind", "Status") != "Status":
        return ""
    return str(status.get("message", ""))[:MAX_STATUS_MESSAGE].encode(errors="replace").decode()


class _NamesResolver(AbstractResolver):
    """Resolves names in threads of the client."""

    def __init__(self, names: NameResolver) -> None:
        self._names = names

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        addresses = await self._names.look_up(host, port, family)
        return [_resolve_result(host, str(address[0]), port, found_family) for found_family, _, _, _, address in addresses]

    async def close(self) -> None:
        return


class _ServiceResolver(AbstractResolver):
    """Resolves the host of a service to one of its endpoints."""

    def __init__(self, service: ServiceTarget, resolve_service: ResolveService, names: AbstractResolver) -> None:
        self._service = service
        self._resolve_service = resolve_service
        self._names = names

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        address, endpoint_port = self._resolve_service(self._service)
        try:
            socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
        except OSError:  # a name, of a service with the type ExternalName
            results = await self._names.resolve(address, endpoint_port, family)
            return [_resolve_result(host, result["host"], endpoint_port, result["family"]) for result in results]
        return [_resolve_result(host, address, endpoint_port, socket.AF_INET6 if ":" in address else socket.AF_INET)]

    async def close(self) -> None:
        return


def _resolve_result(host: str, address: str, port: int, family: int) -> ResolveResult:
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST)
