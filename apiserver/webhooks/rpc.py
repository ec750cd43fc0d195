"""The gRPC transport of webhooks (pinnace.admission.v1.Admission), and the loader of --admission-control-config-file.

With TLS, the API server presents its own certificate, and verifies the certificate of the webhook with the configured CA. The
next call after a change of the files opens a new connection. The previous connection is kept for running calls.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from pinnace.api.admission_pb2 import ReviewRequest, ReviewResponse
from pinnace.apiserver.webhooks.webhook import Webhook, WebhookConfiguration, WebhookError, WebhookMetrics, parse_configuration
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.configuration import ConfigurationError
from pinnace.runtime.tls import ReloadingCredentials, TlsFiles

METHOD = "/pinnace.admission.v1.Admission/Review"
MAX_ANSWER = 16 << 20
"""Maximum size of a response in bytes."""
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_ANSWER),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


class GrpcWebhookTransport:
    """The connection to one webhook."""

    def __init__(self, configuration: WebhookConfiguration, own: TlsFiles | None) -> None:
        """`own` contains the certificate, key and CA of the server; None without TLS. Raises OSError if the files cannot be
        read, and ValueError if there is no CA."""
        self._address = configuration.address
        self._tls = ReloadingCredentials(_files(configuration, own)) if configuration.tls else None
        self._channels: list[
            grpc.aio.Channel
        ] = []  # new calls use the last one; created by the first call, because it needs the running event loop

    async def review(self, request: ReviewRequest, timeout: float) -> ReviewResponse:
        if not self._channels or (self._tls is not None and self._tls.renew()):
            self._channels = [*self._channels[-1:], self._connect()]
        call: Any = self._channels[-1].unary_unary(METHOD, ReviewRequest.SerializeToString)
        try:
            return ReviewResponse.FromString(await call(request, timeout=timeout))
        except grpc.aio.AioRpcError as error:
            raise WebhookError(f"code {error.code().name}: {error.details()}") from None
        except DecodeError:  # if gRPC decoded the response, it would return None and log a traceback
            raise WebhookError("the response is not a valid ReviewResponse") from None

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    def _connect(self) -> grpc.aio.Channel:
        if self._tls is None:
            return grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        return grpc.aio.secure_channel(self._address, self._tls.current.for_channel(), options=_OPTIONS)


def _files(configuration: WebhookConfiguration, own: TlsFiles | None) -> TlsFiles:
    if own is not None:
        return replace(own, ca=configuration.ca or own.ca)
    if configuration.ca is None:
        raise ValueError(f"{configuration.name}: clientConfig.caFile: required, because this server has no CA")
    return TlsFiles(configuration.ca)


def load(path: Path, own: TlsFiles | None, meter: WebhookMetrics) -> list[Webhook]:
    """Load the webhooks of a configuration file. Relative paths in it are relative to its folder. `own` contains the
    certificate, key and CA of the server; None without TLS. Raises ConfigurationError."""
    try:
        configurations = parse_configuration(path.read_text(), path.parent)
        return [
            Webhook(configuration, GrpcWebhookTransport(configuration, own), meter, SYSTEM_CLOCK)
            for configuration in configurations
        ]
    except (ConfigurationError, OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
