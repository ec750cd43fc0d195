"""The global flags, and the parameter types of all verbs."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)
"""A word without characters that a shell expands or splits."""
SHOWN = 100
"""Maximum length of an invalid value in messages, in characters."""
LONGEST = 100 * 365 * 86_400.0
"""The maximum duration, in seconds. Timestamps of the API do not exceed it."""


@dataclass(slots=True)
class Settings:
    """The values of the global flags, before or after the verb; None if not set."""

    server: str | None = None
    """ "host:port[,host:port]": takes precedence over the kubeconfig."""
    kubeconfig: Path | None = None
    """The kubeconfig to read and write instead of those of kubectl."""
    context: str | None = None
    namespace: str | None = None
    acting_as: str | None = None
    """The user to impersonate."""
    acting_groups: tuple[str, ...] = ()
    timeout: float | None = None
    """Time limit of the command, in seconds."""
    verbose: int = 0
    no_color: bool = False


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """A duration such as "90", "90s", "1m30s", "500ms" or "2h", in seconds; more than 0 and at most LONGEST."""

    name = "duration"
    _UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}  # noqa: RUF012 (never changed)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        if re.fullmatch(r"\d+(\.\d+)?", text):
            seconds = float(text)
        elif re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h))+", text):
            seconds = sum(float(n) * self._UNITS[unit] for n, unit in re.findall(r"([\d.]+)(ms|s|m|h)", text))
        else:
            self.fail(f'"{text[:SHOWN]}" is not a duration; expected something like 30s, 1m30s or 2h', param, ctx)
        if seconds <= 0:
            self.fail(f'"{text[:SHOWN]}" is not a positive duration', param, ctx)
        if seconds > LONGEST:
            self.fail(f'"{text[:SHOWN]}" exceeds the maximum of 100 years', param, ctx)
        return seconds


DURATION = Duration()


class Text(click.types.StringParamType):
    """A text argument that can be encoded as UTF-8. Bytes that the locale cannot decode are decoded as UTF-8, as in the
    standard streams."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = super().convert(value, param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            try:
                return os.fsencode(text).decode()
            except UnicodeError:
                self.fail(f'"{text[:SHOWN]}" is not valid Unicode', param, ctx)
        return text


TEXT = Text()


def as_text(params: Sequence[click.Parameter]) -> None:
    """Replace the type of parameters that accept any text by TEXT."""
    for param in params:
        if param.type is click.STRING:
            param.type = TEXT


def _store_flag(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store the value of a flag. Flags of the verb are parsed after those of the group, so a flag after the verb takes
    precedence."""
    if value and param.name:
        setattr(ctx.ensure_object(Settings), param.name, value)


def complete_words(values: Iterable[str], incomplete: str) -> list[str]:
    """Return the values with this prefix that consist of safe characters. A shell inserts a completion unquoted and expands it,
    and a role can have the name `$(reboot)`."""
    return [value for value in values if value.startswith(incomplete) and _WORD.fullmatch(value)]


def complete_context(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Complete the contexts of pinnace clusters in the kubeconfig."""
    from click.shell_completion import CompletionItem  # only needed for completion

    from pinnace.client.config import ConfigError, known_contexts

    try:
        known = list(known_contexts(ctx.ensure_object(Settings).kubeconfig))
    except ConfigError:
        known = []
    return [CompletionItem(name) for name in complete_words(known, incomplete)]


def global_options() -> list[click.Parameter]:
    """Return new option objects for one command. They store values in the Settings of the context, and are not passed to the
    callback."""

    def option(*names: str, **attributes: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_store_flag, **attributes)

    return [
        option("--server", metavar="HOST:PORT[,...]", help="The addresses of the API servers. Overrides the kubeconfig."),
        option(
            "--kubeconfig",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The kubeconfig.  [default: $KUBECONFIG or ~/.kube/config]",
        ),
        option("--context", metavar="NAME", shell_complete=complete_context, help="The name of the context to use."),
        option("-n", "--namespace", metavar="NAME", help="The namespace scope of this request."),
        option("--as", "acting_as", metavar="USER", help="The user to impersonate."),
        option("--as-group", "acting_groups", metavar="GROUP", multiple=True, help="A group to impersonate. May be repeated."),
        option("--timeout", type=DURATION, metavar="DURATION", help="The time limit of the command, such as 10s or 2m."),
        option("-v", "--verbose", count=True, help="Write debug logs, and tracebacks of errors, to stderr."),
        option("--no-color", is_flag=True, help="Disable colors. The environment variable NO_COLOR does the same."),
    ]
