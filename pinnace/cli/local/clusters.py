"""Which other local clusters run: for who asks about one that is not there, or no longer.

Which local cluster is meant, and how other commands find it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

import click
from click.core import ParameterSource

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.servers import configuration, reach
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import note
from pinnace.client import contexts
from pinnace.client.config import ClientConfig, ConfigError, load
from pinnace.client.contexts import data_dirs
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import FolderError, NoCluster
from pinnace.cluster.folder import NO_ROOM, Folder
from pinnace.cluster.processes import running
from pinnace.cluster.spec import default_data_dir
from pinnace.runtime import process


def running_besides(data_dir: Path) -> dict[str, Path]:
    """The folders of the clusters of the configuration of which a process runs, without this one, by their contexts. Raises
    ConfigError."""
    return {name: folder for name, folder in data_dirs().items() if folder != data_dir and _runs(folder)}


def load_cluster(settings: Settings, data_dir: Path, verb: str) -> Cluster:
    """The cluster in this folder. Raises FolderError, and NoCluster: its hint names those that run elsewhere."""
    try:
        return Cluster.load(data_dir)
    except NoCluster as nothing:
        raise NoCluster(nothing.message, hint=hint(settings, data_dir, verb) or nothing.hint) from None


def hint(settings: Settings, data_dir: Path, verb: str) -> str:
    """How to have the verb concern the clusters that run elsewhere; "" when there are none. Where that is the one that commands
    talk to is not always known."""
    try:
        folders = list(running_besides(data_dir).values())
    except ConfigError:
        return ""
    if not folders and (servers := _answering(settings)):
        return f"a cluster answers at {servers}; if it is a local one, say where: `pinnace {verb} --data-dir DIR`"
    said = ", ".join(f"`pinnace {verb} --data-dir {quote(str(folder))}`" for folder in folders)
    return f"{'one runs elsewhere' if len(folders) == 1 else f'{len(folders)} run elsewhere'}: {said}" if folders else ""


def _answering(settings: Settings) -> str:
    """The API servers that commands talk to, if one of them answers and the folder of their cluster is not known."""
    try:
        config = configuration(settings)
        if config.data_dir is None:
            process.run_command(reach(config))
    except Failure:
        return ""
    return ", ".join(config.endpoints) if config.data_dir is None else ""


def _runs(data_dir: Path) -> bool:
    try:
        state = Folder(data_dir).read()
    except FolderError:
        return False
    return state is not None and any(map(running, state.processes))


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
        others = running_besides(data_dir)
        successor = next(iter(others)) if len(others) == 1 else ""
        if contexts.remove_context(_context_name(data_dir), successor) and successor:
            note(f"switched to the cluster in {others[successor]}, which still runs")


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
