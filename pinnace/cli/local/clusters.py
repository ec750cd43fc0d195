"""Selection of a local cluster, and its contexts in the client configuration."""

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
from pinnace.client import config as client_config
from pinnace.client.config import ClientConfig, ConfigError, data_dirs, load
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import FolderError, NoCluster
from pinnace.cluster.folder import NO_ROOM, Folder
from pinnace.cluster.processes import running
from pinnace.cluster.spec import default_data_dir
from pinnace.runtime import process


def running_besides(data_dir: Path) -> dict[str, Path]:
    """Return the data directories of other clusters in the configuration with at least one running process, by context. Raises
    ConfigError."""
    return {name: folder for name, folder in data_dirs().items() if folder != data_dir and _runs(folder)}


def load_cluster(settings: Settings, data_dir: Path, verb: str) -> Cluster:
    """Load the cluster of this directory. Raises FolderError, and NoCluster with a hint that names running clusters."""
    try:
        return Cluster.load(data_dir)
    except NoCluster as nothing:
        raise NoCluster(nothing.message, hint=hint(settings, data_dir, verb) or nothing.hint) from None


def hint(settings: Settings, data_dir: Path, verb: str) -> str:
    """Return commands that select running clusters in other directories, or "" if there are none."""
    try:
        folders = list(running_besides(data_dir).values())
    except ConfigError:
        return ""
    if not folders and (servers := _answering(settings)):
        return f"a cluster is running at {servers}; if it is local, use `pinnace {verb} --data-dir DIR`"
    said = ", ".join(f"`pinnace {verb} --data-dir {quote(str(folder))}`" for folder in folders)
    return f"{'one is running' if len(folders) == 1 else f'{len(folders)} are running'} elsewhere: {said}" if folders else ""


def _answering(settings: Settings) -> str:
    """Return the API servers that commands use, if one responds and the directory of their cluster is unknown."""
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
    """Resolve the path. An empty value comes from an unset variable and does not mean the working directory."""
    if given == "":
        raise click.BadParameter('"" is not a directory')
    return Path(given).resolve() if given is not None else None


data_dir_option = click.option(
    "--data-dir",
    type=click.Path(readable=False),  # the error is reported when the directory is read
    callback=_named,
    envvar="PINNACE_DATA_DIR",
    show_envvar=True,
    metavar="DIR",
    help="The directory of the cluster, with its state, logs and etcd data.  [default: $XDG_STATE_HOME/pinnace/default]",
)


def present_data_dir(settings: Settings, named: Path | None) -> Path:
    """Return the directory of the selected cluster. The order of precedence is --data-dir, --context, $PINNACE_DATA_DIR, the
    cluster that commands use, the default. Raises Failure if the context is not a local cluster."""
    if (found := named_data_dir(settings, named)) is not None:
        return found
    if settings.context:
        found = configuration(settings).data_dir
        if found is None:
            message = f'the cluster of context "{settings.context}" is not a local cluster'
            raise Failure(message, hint="if it is local, specify its directory with --data-dir", code=ExitCode.NOT_FOUND)
        return found
    with suppress(ConfigError):
        if found := load(settings.server).data_dir:
            return found
    return default_data_dir()


def named_data_dir(settings: Settings, named: Path | None) -> Path | None:
    """Return the value of --data-dir or $PINNACE_DATA_DIR, or None. --context takes precedence over the variable."""
    return None if settings.context and _by_environment() else named


def _by_environment() -> bool:
    """Whether the directory was set by the environment variable."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source("data_dir") is ParameterSource.ENVIRONMENT


def check_writable() -> None:
    """Raises Failure if the configuration file is not writable, so that other commands could not find a new cluster."""
    with editing():
        client_config.check_writable()


def write_context(found: ClientConfig) -> str:
    """Write the context of the cluster, and make it the current one. Return the previous current context if it was another one,
    else "". Raises Failure."""
    name = _context_name(found.data_dir or default_data_dir())
    with editing():
        before = client_config.current_context()
        client_config.write_context(name, found)
    return before if before != name else ""


def refresh(found: ClientConfig) -> None:
    """Update the addresses of the API servers after a start. The current context is not changed, unless the cluster had no
    context. Raises Failure."""
    assert found.data_dir is not None
    with editing():
        known = [name for name, folder in client_config.data_dirs().items() if folder == found.data_dir]
        if not known:
            write_context(found)
        elif any(set(load(context=name).endpoints) != set(found.endpoints) for name in known):
            current = client_config.current_context()
            client_config.write_context(_context_name(found.data_dir), found)
            if current:
                client_config.use_context(current)


def remove_context(data_dir: Path) -> None:
    """Remove the context of the cluster. If it was the current one and exactly one other local cluster is running, make that
    the current one, and print a note. Raises Failure."""
    with editing():
        others = running_besides(data_dir)
        successor = next(iter(others)) if len(others) == 1 else ""
        if client_config.remove_context(_context_name(data_dir), successor) and successor:
            note(f"switched to the cluster in {others[successor]}, which is running")


def _context_name(data_dir: Path) -> str:
    return "local" if data_dir == default_data_dir() else f"local:{data_dir}"


@contextmanager
def editing(code: ExitCode = ExitCode.SERVER) -> Iterator[None]:
    """Convert errors of reading and writing the configuration into Failure. `code` is the exit code for an invalid file."""
    try:
        yield
    except ConfigError as error:
        raise Failure(str(error), hint=error.hint, code=code) from error
    except OSError as error:
        hint = "free some space" if error.errno in NO_ROOM else "set another file with PINNACE_CONFIG"
        raise Failure(f"the client configuration cannot be written: {error}", hint=hint) from error
