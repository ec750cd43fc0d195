"""Options that all components have."""

import socket

import click

from pinnace.runtime.http import parse_address
from pinnace.runtime.tracing import Tracer, connect


def address(text: str) -> tuple[str, int]:
    """The type of an option: HOST:PORT, as a pair."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


replica = click.option(
    "--name", default=socket.gethostname, show_default="the host name", help="Who this replica is: the leader's name."
)
logging_format = click.option(
    "--logging-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How lines of the log are written: for people, or for programs.",
)
tracing_endpoint = click.option(
    "--tracing-endpoint",
    metavar="HOST:PORT",
    help="An OTLP collector (gRPC, without TLS) that is sent traces.  [default: none]",
)
verbose = click.option("-v", "--verbose", count=True, help="Log more.")


def tracer(endpoint: str | None, component: str, name: str, *, per_million: int = 0) -> Tracer:
    """As pinnace.runtime.tracing.connect; mistakes are those of the command line. Raises click.UsageError."""
    try:
        if endpoint is not None:
            parse_address(endpoint)
        return connect(endpoint, component, name, per_million=per_million)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--tracing-endpoint") from None
    except ModuleNotFoundError as error:
        message = f"--tracing-endpoint needs OpenTelemetry: pip install 'pinnace[tracing]' ({error})"
        raise click.UsageError(message) from None
