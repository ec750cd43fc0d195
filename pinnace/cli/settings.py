"""The flags that every verb takes, as values."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import click

_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)
"""A word that no shell expands or divides."""
SHOWN = 100
"""Characters of a value that is wrong."""
LONGEST = 100 * 365 * 86_400.0
"""Seconds. What was before, or comes after, neither clocks nor the API can say."""


@dataclass(slots=True)
class Settings:
    """What was asked for, before or after the verb; None where nothing was said."""

    server: str | None = None
    """ "host:port[,host:port]": goes before the configuration file."""
    context: str | None = None
    namespace: str | None = None
    timeout: float | None = None
    """Seconds for the whole command."""
    verbose: int = 0
    no_color: bool = False


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """ "90", "90s", "1m30s", "500ms", "2h": seconds as a float, more than 0 and at most LONGEST."""

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
            self.fail(f'"{text[:SHOWN]}" leaves no time; expected more than 0', param, ctx)
        if seconds > LONGEST:
            self.fail(f'"{text[:SHOWN]}" is longer than a hundred years; expected less', param, ctx)
        return seconds


class WaitTimeout(Duration):
    """As kubectl's `wait` has it, also 0, for a look without waiting, and less than that, for a week."""

    WEEK = 7 * 86_400.0

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        if re.fullmatch(r"0+(ms|s|m|h)?", text):
            return 0.0
        seconds = super().convert(text.removeprefix("-"), param, ctx)
        return self.WEEK if text.startswith("-") else seconds


DURATION = Duration()
WAIT_TIMEOUT = WaitTimeout()


class Text(click.types.StringParamType):
    """A text that can be sent: what is no Unicode has a place in the names of files alone. What the locale cannot read is read
    as UTF-8, as the standard streams are."""

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
    """Has those that take any text take no other."""
    for param in params:
        if param.type is click.STRING:
            param.type = TEXT


def _store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keeps a flag that was given. The verb's flags are parsed after the group's, so the one after the verb wins."""
    if value and param.name:
        setattr(ctx.ensure_object(Settings), param.name, value)


Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[Any]]
completing: dict[str, Complete] = {}
"""How a shell completes global options, by their names, where servers are asked for it: those who know how put it here."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    complete = completing.get(param.name or "")
    return complete(ctx, param, incomplete) if complete is not None else []


def words(values: Iterable[str], incomplete: str) -> list[str]:
    """Those that begin so and are plain words. A shell inserts a completion as it is and expands it with the command: a role
    may be called `$(reboot)`."""
    return [value for value in values if value.startswith(incomplete) and _WORD.fullmatch(value)]


def complete_context(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Of those of the configuration file."""
    from click.shell_completion import CompletionItem  # only once a shell asks

    from pinnace.client.config import ConfigError, config_path, found, names

    try:
        known = names(found(config_path()) or {}, "context")
    except ConfigError:
        known = []
    return [CompletionItem(name) for name in words(known, incomplete)]


def global_options() -> list[click.Parameter]:
    """New option objects for one command; they store into the context's Settings and are not passed to its callback."""

    def option(*names: str, **attributes: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_store, **attributes)

    return [
        option(
            "--server", metavar="HOST:PORT[,...]", help="The addresses of the API servers. Overrides the configuration file."
        ),
        option("--context", metavar="NAME", shell_complete=complete_context, help="The name of the context to use."),
        option("-n", "--namespace", metavar="NAME", shell_complete=_complete, help="The namespace scope of this request."),
        option("--timeout", type=DURATION, metavar="DURATION", help="The time limit of the command, such as 10s or 2m."),
        option("-v", "--verbose", count=True, help="Write debug logs, and tracebacks of errors, to stderr."),
        option("--no-color", is_flag=True, help="Disable colors. The environment variable NO_COLOR does the same."),
    ]
