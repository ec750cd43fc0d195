"""From the file of --admission-control-config-file to webhooks that can be asked."""

from pathlib import Path

from apiserver.webhooks.configuration import parse
from apiserver.webhooks.rpc import RpcTransport
from apiserver.webhooks.webhook import Meter, Webhook
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.configuration import ConfigurationError
from pinnace.runtime.tls import TlsFiles


def load(path: Path, own: TlsFiles | None, meter: Meter) -> list[Webhook]:
    """`own`: the server's certificate, and whom it trusts. Files that it names are looked up beside it. Raises
    ConfigurationError."""
    try:
        configurations = parse(path.read_text(), path.parent)
        return [Webhook(each, RpcTransport(each, own), meter, SYSTEM_CLOCK) for each in configurations]
    except (ConfigurationError, OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
