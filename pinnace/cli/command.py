"""The classes of commands: `Verb`, a command with examples and the global flags, and `LazyGroup`, which imports the module of a
verb when the verb is used.

The module of a verb in `pinnace.cli.verbs` has the name of the verb, or is listed in `main.MODULES`.
"""

import difflib
import gc
import logging
import textwrap
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any

import click

from pinnace.cli.outcomes import ReaderGone
from pinnace.cli.settings import Settings, as_text, global_options
from pinnace.cli.table import KUBECTLS, LOGS, OURS

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
"""The values of boolean flags that kubectl accepts."""


class Verb(click.Command):
    """A command that also accepts the global flags. The first argument of the callback is the Settings."""

    def __init__(self, name: str | None, *, examples: str = "", **attributes: Any) -> None:
        attributes.setdefault("context_settings", CONTEXT)
        super().__init__(name, **attributes)
        self.examples = textwrap.dedent(examples).strip("\n")
        self.global_params = global_options()
        own = {name for param in self.params for name in param.opts}
        self.params += [param for param in self.global_params if not own & set(param.opts)]
        as_text(self.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args if ctx.resilient_parsing else list(_translate_kubectl_forms(ctx, args)))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click does not set the context of every error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.ensure_object(Settings).verbose:
            from pinnace.runtime import logs

            logs.configure_logging("pinnace", verbosity=1)
        else:  # logs of libraries are shown with -v only
            logging.getLogger().addHandler(logging.NullHandler())
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                formatter.write(textwrap.indent(self.examples, "  ") + "\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        own = [param for param in options if param not in self.global_params]
        for title, params in (("Options", own), ("Global options", self.global_params)):
            records = [record for param in params if param in options and (record := param.get_help_record(ctx))]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _translate_kubectl_forms(ctx: click.Context, args: Sequence[str], ends: Container[str] = ("--",)) -> Iterator[str]:
    """Convert the arguments before one of `ends` from the forms that kubectl accepts to those of click. "-n=team" becomes
    "-nteam". "--wait=true" and "--wait=false" become the flag and its opposite; a false flag without an opposite is omitted."""
    options = {name: param for param in ctx.command.params if isinstance(param, click.Option) for name in param.opts}
    words = iter(args)
    for arg in words:
        name, equals, value = arg.partition("=")
        option = options.get(name) if equals else None
        if arg in ends:
            yield arg
            yield from words
        elif option is None or not option.is_flag:
            yield _strip_attached_sign(options, arg)
            yield from islice(words, 1 if _needs_value(options, arg) else 0)
        elif value.lower() not in BOOLEANS:
            raise click.BadParameter(f'"{value}" is neither true nor false', ctx, option)
        elif BOOLEANS[value.lower()]:
            yield name
        else:
            yield from option.secondary_opts[:1]


def _strip_attached_sign(options: Mapping[str, click.Option], arg: str) -> str:
    """Remove the sign from "-n=team" and from combined flags, as in "-wn=team". Other arguments are returned unmodified."""
    word, _, value = arg.partition("=")
    letters = word.removeprefix("-")
    if not value or word == letters or letters[:1] in ("", "-"):
        return arg
    *flags, last = (f"-{letter}" for letter in letters)
    takes = _takes_value(options, last) and all(flag in options and not _takes_value(options, flag) for flag in flags)
    return f"{word}{value}" if takes else arg


def _needs_value(options: Mapping[str, click.Option], name: str) -> bool:
    """Return whether the option has a value that cannot be omitted."""
    return _takes_value(options, name) and not isinstance(options[name].flag_value, str)


def _takes_value(options: Mapping[str, click.Option], name: str) -> bool:
    option = options.get(name)
    return option is not None and not option.is_flag and not option.count


def verb(name: str, *, examples: str = "", **attributes: Any) -> Callable[[Callable[..., Any]], Verb]:
    """Decorate a function with click's arguments and options as the command `name`. The docstring is the help text and its
    first line the summary. `examples` are lines of shell with comments."""

    def decorate(function: Callable[..., Any]) -> Verb:
        made = click.command(name, cls=Verb, examples=examples, **attributes)(click.pass_obj(function))
        assert isinstance(made, Verb)
        return made

    return decorate


class VerbGroup(click.Group):
    """A verb with subcommands."""

    def __init__(self, name: str | None = None, **attributes: Any) -> None:
        attributes.setdefault("context_settings", CONTEXT)
        attributes.setdefault("no_args_is_help", False)
        super().__init__(name, **attributes)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        raise click.UsageError(f'unknown command "{name}"{did_you_mean(name, list(self.commands))}', ctx)


class DefaultGroup(VerbGroup):
    """A group with a default subcommand: `pinnace leader -w` is `pinnace leader show -w`."""

    def __init__(self, name: str | None = None, *, default: str, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and args[0] in {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if named or ctx.resilient_parsing else [self.default, *args])


class LazyGroup(click.Group):
    """A group of our verbs. It imports the module of a verb when the verb is used. `modules` maps a verb to its module in
    `package` if the names differ."""

    def __init__(self, name: str, *, package: str, modules: Mapping[str, str], **attributes: Any) -> None:
        attributes.setdefault("context_settings", CONTEXT)
        super().__init__(name, params=global_options(), **attributes)
        as_text(self.params)
        self._package = package
        self._modules = modules

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ends = {"--", *self.list_commands(ctx)}
        return super().parse_args(ctx, args if ctx.resilient_parsing else list(_translate_kubectl_forms(ctx, args, ends)))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(verb for verbs in OURS.values() for verb in verbs), LOGS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        with _freeze_garbage_collection():
            module = import_module(f"{self._package}.{self._modules.get(cmd_name, cmd_name)}")
        return next(var for var in vars(module).values() if isinstance(var, click.Command) and var.name == cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx) and not ctx.resilient_parsing:
            known = [*self.list_commands(ctx), *" ".join(KUBECTLS.values()).split()]
            raise click.UsageError(f'unknown command "{name}"{did_you_mean(name, known)}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in OURS.items():
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()))
        with formatter.section("Kubernetes' commands, which kubectl runs with the cluster's context"):
            formatter.write_dl([(title, verbs.replace(" ", ", ")) for title, verbs in KUBECTLS.items()])
            formatter.write_dl([("kubectl", "Run kubectl with these arguments.")])
            formatter.write_dl([("logs COMPONENT", "Print the log of a process of a local cluster.")])


@contextmanager
def _freeze_garbage_collection() -> Iterator[None]:
    """Exclude the objects of an import from garbage collection, now and at exit. A collection would take a quarter of the run
    time of a short command."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def did_you_mean(word: str, known: list[str]) -> str:
    """Return '; did you mean "x"?', or an empty string if no known word is similar."""
    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else ""
