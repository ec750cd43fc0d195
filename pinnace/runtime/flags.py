"""The command line of a component, and options that all components share."""

import difflib
import logging
import os
import socket
from collections.abc import Iterable
from typing import Any

import click

from pinnace.runtime import build, logs
from pinnace.runtime.http import parse_address
from pinnace.runtime.tracing import Tracer, connect_tracer

log = logging.getLogger(__name__)
replica_name_option = click.option(
    "--name", default=socket.gethostname, show_default="the host name", help="The name of this replica."
)
tracing_endpoint_option = click.option(
    "--tracing-endpoint",
    metavar="HOST:PORT",
    help="Endpoint of an OTLP collector (gRPC without TLS) that traces are sent to.  [default: none]",
)


class ComponentCommand(click.Command):
    """The command `pinnace-COMPONENT`. Each option can be set by an environment variable, which is named after its longest
    flag. For example, PINNACE_CONTROLLERS_NODE_EVICTION_RATE sets --node-eviction-rate of `pinnace-controllers`. Flags take
    precedence. A variable that has the prefix but matches no option is logged as a warning.

    The command must have the option --name, which names the component in its log. The logging options are added here and are
    not passed to the callback."""

    def __init__(self, name: str, **attributes: Any) -> None:
        # A fixed width keeps the names of variables on one line, so that they can be searched and copied.
        super().__init__(name, context_settings={"show_default": True, "terminal_width": 110}, **attributes)
        self.params += _logging_options()
        self._prefix = f"{_variable_name(name)}_"
        for param in self.params:
            assert isinstance(param, click.Option)
            param.envvar = self._prefix + _variable_name(max(param.opts, key=len))
            param.show_envvar = True

    def invoke(self, ctx: click.Context) -> Any:
        logs.configure_logging(ctx.params["name"], ctx.params.pop("verbose"), ctx.params.pop("logging_format"))
        log.info("%s %s", self.name, build.build_version())
        self._warn_of_unknown_variables()
        return super().invoke(ctx)

    def _warn_of_unknown_variables(self) -> None:
        known = [str(param.envvar).removeprefix(self._prefix) for param in self.params]
        for variable in sorted(os.environ):
            name = variable.removeprefix(self._prefix)
            if variable.startswith(self._prefix) and name not in known:
                nearest = _nearest_name(name, known)
                hint = f"did you mean {self._prefix}{nearest}?" if nearest else "see --help"
                log.warning("the environment variable %s matches no option; %s", variable, hint)


def _variable_name(name: str) -> str:
    return name.lstrip("-").replace("-", "_").upper()


def _nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the shortest known name that contains all words of `name`, or else the most similar one."""
    words = set(name.split("_"))
    longer = sorted((item for item in known if words <= set(item.split("_"))), key=len)
    return next(iter(longer or difflib.get_close_matches(name, known, n=1)), None)


def _logging_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--logging-format"],
            type=click.Choice(["text", "json"]),
            default="text",
            help="Sets the log format.",
        ),
        click.Option(["-v", "--verbose"], count=True, help="Enable debug logging."),
    ]


def parse_address_option(text: str) -> tuple[str, int]:
    """Parse the option value HOST:PORT to a pair. Raises click.BadParameter."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def connect_tracer_option(endpoint: str | None, component: str, name: str, *, per_million: int = 0) -> Tracer:
    """Call pinnace.runtime.tracing.connect_tracer. Errors are reported for --tracing-endpoint. Raises click.UsageError."""
    try:
        if endpoint is not None:
            parse_address(endpoint)
        return connect_tracer(endpoint, component, name, per_million=per_million)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--tracing-endpoint") from None
    except ModuleNotFoundError as error:
        message = f"--tracing-endpoint requires OpenTelemetry: pip install 'pinnace[tracing]' ({error})"
        raise click.UsageError(message) from None
