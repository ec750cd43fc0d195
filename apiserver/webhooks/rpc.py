"""How a webhook is reached: pinnace.admission.v1.Admission over gRPC.

With TLS the API server shows its own certificate, and the webhook's must be from the authority that the configuration names.
Files that were renewed are used from the next call on; the connection before them stays for the calls that are under way.

From the file of --admission-control-config-file to webhooks that can be asked.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from apiserver.webhooks.webhook import Webhook, WebhookConfiguration, WebhookError, WebhookMetrics, parse_configuration
from pinnace.api.admission_pb2 import ReviewRequest, ReviewResponse
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.configuration import ConfigurationError
from pinnace.runtime.tls import Renewed, TlsFiles

METHOD = "/pinnace.admission.v1.Admission/Review"
MAX_ANSWER = 16 << 20
"""Bytes."""
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_ANSWER),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


class GrpcWebhookTransport:
    def __init__(self, configuration: WebhookConfiguration, own: TlsFiles | None) -> None:
        """`own`: the server's certificate, and whom it trusts. Raises OSError when the files cannot be used, ValueError when
        there is nobody to trust."""
        self._address = configuration.address
        self._tls = Renewed(_files(configuration, own)) if configuration.tls else None
        self._channels: list[
            grpc.aio.Channel
        ] = []  # the last is in use; made by the first call: it belongs to the running loop

    async def review(self, request: ReviewRequest, timeout: float) -> ReviewResponse:
        if not self._channels or (self._tls is not None and self._tls.renew()):
            self._channels = [*self._channels[-1:], self._connect()]
        call: Any = self._channels[-1].unary_unary(METHOD, ReviewRequest.SerializeToString)
        try:
            return ReviewResponse.FromString(await call(request, timeout=timeout))
        except grpc.aio.AioRpcError as error:
            raise WebhookError(f"code {error.code().name}: {error.details()}") from None
        except DecodeError:  # by gRPC it would be told as None, and by a traceback in the log
            raise WebhookError("its answer is no ReviewResponse") from None

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
        raise ValueError(f"{configuration.name}: clientConfig.caFile: needed, as this server has no authority of its own")
    return TlsFiles(configuration.ca)


def load(path: Path, own: TlsFiles | None, meter: WebhookMetrics) -> list[Webhook]:
    """`own`: the server's certificate, and whom it trusts. Files that it names are looked up beside it. Raises
    ConfigurationError."""
    try:
        configurations = parse_configuration(path.read_text(), path.parent)
        return [Webhook(each, GrpcWebhookTransport(each, own), meter, SYSTEM_CLOCK) for each in configurations]
    except (ConfigurationError, OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
