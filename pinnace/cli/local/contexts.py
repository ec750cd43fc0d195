"""Which local cluster is meant, and how other commands find it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click
from click.core import ParameterSource

from pinnace.cli.local import elsewhere
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.servers import configuration
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import note
from pinnace.client import contexts
from pinnace.client.config import ClientConfig, ConfigError, load
from pinnace.cluster.folder import NO_ROOM
from pinnace.cluster.spec import default_data_dir


def _named(context: click.Context, option: click.Parameter, given: str | None) -> Path | None:
    """By its real name. An empty one is a variable that is not set: the present folder is not what is meant."""
    if given == "":
        raise click.BadParameter('"" is no folder')
    return Path(given).resolve() if given is not None else None


data_dir_option = click.option(
    "--data-dir",
    type=click.Path(readable=False),  # what cannot be read is told by who reads it
    callback=_named,
    envvar="PINNACE_DATA_DIR",
    show_envvar=True,
    metavar="DIR",
    help="The cluster's folder: state, logs, etcd's data.  [default: $XDG_STATE_HOME/pinnace/default]",
)


def present_data_dir(settings: Settings, named: Path | None) -> Path:
    """The folder of the local cluster that is meant: what --data-dir says, that of --context, $PINNACE_DATA_DIR, that of the
    cluster that commands talk to, or the default one. Raises Failure when --context names no local cluster."""
    if (found := named_data_dir(settings, named)) is not None:
        return found
    if settings.context:
        found = configuration(settings).data_dir
        if found is None:
            message = f'the cluster of context "{settings.context}" is no local one'
            raise Failure(message, hint="if it is, name its folder with --data-dir", code=ExitCode.NOT_FOUND)
        return found
    with suppress(ConfigError):
        if found := load(settings.server).data_dir:
            return found
    return default_data_dir()


def named_data_dir(settings: Settings, named: Path | None) -> Path | None:
    """What --data-dir says, or $PINNACE_DATA_DIR, which --context goes before. None: neither says anything."""
    return None if settings.context and _by_environment() else named


def _by_environment() -> bool:
    """Whether it is a variable that has named the folder."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source("data_dir") is ParameterSource.ENVIRONMENT


def check_writable() -> None:
    """Before there is anything to write: raises Failure when other commands could not find a cluster."""
    with editing():
        contexts.check_writable()


def write_context(found: ClientConfig) -> str:
    """Lets other commands find the cluster. The context that was the current one until then, if it is another's, or "". Raises
    Failure."""
    name = _context_name(found.data_dir or default_data_dir())
    with editing():
        before = contexts.current_context()
        contexts.write_context(name, found)
    return before if before != name else ""


def refresh(found: ClientConfig) -> None:
    """After a start: has the cluster's contexts name the API servers where they are now. The current context stays, unless the
    cluster had none. Raises Failure."""
    assert found.data_dir is not None
    with editing():
        known = [name for name, folder in contexts.data_dirs().items() if folder == found.data_dir]
        if not known:
            write_context(found)
        elif any(set(load(context=name).endpoints) != set(found.endpoints) for name in known):
            current = contexts.current_context()
            contexts.write_context(_context_name(found.data_dir), found)
            if current:
                contexts.use_context(current)


def remove_context(data_dir: Path) -> None:
    """The opposite. Where it was the current context, that of the only other local cluster that runs is it from then on, and a
    note says so. Raises Failure."""
    with editing():
        others = elsewhere.running_besides(data_dir)
        successor = next(iter(others)) if len(others) == 1 else ""
        if contexts.remove_context(_context_name(data_dir), successor) and successor:
            note(f"commands talk to the cluster in {others[successor]} now, which still runs")


def _context_name(data_dir: Path) -> str:
    return "local" if data_dir == default_data_dir() else f"local:{data_dir}"


@contextmanager
def editing(code: ExitCode = ExitCode.SERVER) -> Iterator[None]:
    """While the configuration is read and written. Raises Failure: what is wrong with the file, with this exit code; or that it
    cannot be written."""
    try:
        yield
    except ConfigError as error:
        raise Failure(str(error), hint=error.hint, code=code) from error
    except OSError as error:
        hint = "free some space" if error.errno in NO_ROOM else "name another file with PINNACE_CONFIG"
        raise Failure(f"the client configuration cannot be written: {error}", hint=hint) from error
