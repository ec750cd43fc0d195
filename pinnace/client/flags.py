"""Options of all components that are clients of the API servers."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pinnace.client.config import ClientConfig, load
from pinnace.client.kubeconfig import ConfigError

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


Servers = Callable[[], ClientConfig]


def servers(command: Callable[..., None]) -> Callable[..., None]:
    """Adds them to a command, which gets `servers`: where they are, for the asking. Raises click.UsageError when asked."""

    @click.option("--server", help="API servers, HOST:PORT[,HOST:PORT...].  [default: as the client is configured]")
    @click.option("--kubeconfig", type=_FILE, help="The client's configuration.  [default: $PINNACE_CONFIG, or the user's]")
    @wraps(command)
    def with_servers(*args: Any, server: str | None, kubeconfig: Path | None, **options: Any) -> None:
        def configured() -> ClientConfig:
            try:
                return load(server, file=kubeconfig)
            except ConfigError as error:
                raise click.UsageError(f"{error}\nhint: {error.hint}") from None

        command(*args, servers=configured, **options)

    return with_servers
