"""Selection of a local cluster, and its contexts in the kubeconfig."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote

import click
from click.core import ParameterSource

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.servers import connect_to_any_server, load_configuration
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_note
from pinnace.client import contexts, kubeconfig_file
from pinnace.client.config import ClientConfig, ConfigError, known_contexts, load_config
from pinnace.client.contexts import WrittenContext
from pinnace.client.kubeconfig_file import file_for_new_entries, kubectl_paths
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import FolderError, NoCluster
from pinnace.cluster.folder import NO_ROOM, ClusterFolder
from pinnace.cluster.processes import find_running
from pinnace.cluster.spec import FILE as STATE_FILE
from pinnace.cluster.spec import default_data_dir
from pinnace.runtime import process


def find_other_running_clusters(data_dir: Path) -> dict[str, Path]:
    """Return the data directories of other clusters in the configuration with at least one running process, by context. Raises
    ConfigError."""
    known = known_contexts()
    return {name: folder for name, folder in known.items() if folder not in (None, data_dir) and _is_running(folder)}


def load_cluster(settings: Settings, data_dir: Path, verb: str) -> Cluster:
    """Load the cluster of this directory. Raises FolderError, and NoCluster with a hint that names running clusters."""
    try:
        return Cluster.load(data_dir)
    except NoCluster as nothing:
        raise NoCluster(nothing.message, hint=hint_at_other_clusters(settings, data_dir, verb) or nothing.hint) from None


def hint_at_other_clusters(settings: Settings, data_dir: Path, verb: str) -> str:
    """Return commands that select running clusters in other directories, or "" if there are none."""
    try:
        folders = list(find_other_running_clusters(data_dir).values())
    except ConfigError:
        return ""
    if not folders and (servers := _find_answering_servers(settings)):
        return f"a cluster is running at {servers}; if it is local, use `pinnace {verb} --data-dir DIR`"
    said = ", ".join(f"`pinnace {verb} --data-dir {quote(str(folder))}`" for folder in folders)
    return f"{'one is running' if len(folders) == 1 else f'{len(folders)} are running'} elsewhere: {said}" if folders else ""


def _find_answering_servers(settings: Settings) -> str:
    """Return the API servers that commands use, if one responds and the directory of their cluster is unknown."""
    try:
        config = load_configuration(settings)
        if config.data_dir is None:
            process.run_command(connect_to_any_server(config))
    except Failure:
        return ""
    return ", ".join(config.endpoints) if config.data_dir is None else ""


def _is_running(data_dir: Path) -> bool:
    try:
        state = ClusterFolder(data_dir).read()
    except FolderError:
        return False
    return state is not None and any(map(find_running, state.processes))


def _resolve_named_folder(context: click.Context, option: click.Parameter, given: str | None) -> Path | None:
    """Resolve the path. An empty value comes from an unset variable and does not mean the working directory."""
    if given == "":
        raise click.BadParameter('"" is not a directory')
    return Path(given).resolve() if given is not None else None


data_dir_option = click.option(
    "--data-dir",
    type=click.Path(readable=False),  # the error is reported when the directory is read
    callback=_resolve_named_folder,
    envvar="PINNACE_DATA_DIR",
    show_envvar=True,
    metavar="DIR",
    help="The directory of the cluster, with its state, logs and etcd data.  [default: `up`: $XDG_STATE_HOME/pinnace/default; "
    "others: that of the current context]",
)


def present_data_dir(settings: Settings, named: Path | None) -> Path:
    """Return the directory of the selected cluster. The order of precedence is --data-dir, --context, $PINNACE_DATA_DIR, the
    cluster that commands use, the only cluster with a context, the default. Raises Failure if the context is not a local
    cluster, or if a foreign context is current and there are several clusters."""
    if (path := named_data_dir(settings, named)) is not None:
        return path
    if settings.context:
        path = load_configuration(settings).data_dir
        if path is None:
            message = f'the cluster of context "{settings.context}" is not a local cluster'
            raise Failure(message, hint="if it is local, specify its directory with --data-dir", code=ExitCode.NOT_FOUND)
        return path
    try:
        path = load_config(settings.server, file=settings.kubeconfig, can_impersonate=True).data_dir
    except ConfigError:
        path = _only_data_dir(settings)
    return path or default_data_dir()


def _only_data_dir(settings: Settings) -> Path | None:
    """Return the directory of the only local cluster with a context, for commands while another context is current. Raises
    Failure if there are several."""
    try:
        known = {name: folder for name, folder in known_contexts(settings.kubeconfig).items() if folder is not None}
    except ConfigError:
        return None
    folders = set(known.values())
    if len(folders) > 1:
        message = "the current context is not one of pinnace, and there are several clusters"
        raise Failure(message, hint=f"choose one with --context: {', '.join(known)}", code=ExitCode.USAGE)
    if not folders:
        return None
    (path,) = folders
    print_note(f"the current context is not one of pinnace: this is about the cluster in {path}")
    return path


def named_data_dir(settings: Settings, named: Path | None) -> Path | None:
    """Return the value of --data-dir or $PINNACE_DATA_DIR, or None. --context takes precedence over the variable."""
    return None if settings.context and _is_set_by_environment() else named


def _is_set_by_environment() -> bool:
    """Return whether the directory was set by the environment variable."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source("data_dir") is ParameterSource.ENVIRONMENT


def check_writable(settings: Settings) -> None:
    """Raise Failure if the kubeconfig is not writable, so that other commands could not find a new cluster."""
    with translate_kubeconfig_errors():
        file = settings.kubeconfig or file_for_new_entries(kubectl_paths())
        kubeconfig_file.check_writable(file)
        if result := kubeconfig_file.describe_risks(file):
            print_note(f"warning: {file}: {result}")


def write_context(settings: Settings, found: ClientConfig, *, make_current: bool = True) -> WrittenContext:
    """Write the context of the cluster into the kubeconfig, and make it the current one. Raises Failure."""
    assert found.data_dir is not None
    name = contexts.context_name(found.data_dir, is_default=found.data_dir == default_data_dir())
    with translate_kubeconfig_errors():
        written = contexts.write_cluster_context(
            found, name, is_dead_context, file=settings.kubeconfig, make_current=make_current
        )
    with suppress(FolderError):  # `down` then looks in the usual files only
        ClusterFolder(found.data_dir).add_kubeconfig(written.path)
    return written


def refresh_context(settings: Settings, found: ClientConfig) -> None:
    """Update the addresses of the cluster after a start. The current context is not changed, unless the cluster had no context.
    Raises Failure."""
    assert found.data_dir is not None
    data_dir, known = found.data_dir, []
    for file in dict.fromkeys((settings.kubeconfig, *ClusterFolder(data_dir).kubeconfigs())):
        with translate_kubeconfig_errors():
            if contexts.has_cluster_context(data_dir, file=file):
                known.append(file)
    for file in known:
        write_context(replace(settings, kubeconfig=file), found, make_current=False)
    if not known:
        write_context(settings, found)


def check_removable(settings: Settings, data_dir: Path, written: Sequence[Path]) -> None:
    """Raise the Failures that `remove_context` would raise, before the cluster is deleted."""
    with translate_kubeconfig_errors():
        for file in dict.fromkeys((settings.kubeconfig, *written)):
            for path in contexts.files_of_cluster(data_dir, file=file):
                kubeconfig_file.check_writable(path)


def remove_context(settings: Settings, data_dir: Path, written: Sequence[Path]) -> None:
    """Remove the context of the cluster from the kubeconfig and from the files `written` (Folder.kubeconfigs before the cluster
    was removed). If it was the current one, the previous one becomes current, with a note. Raises Failure."""
    failures = []
    for file in dict.fromkeys((settings.kubeconfig, *written)):
        try:
            with translate_kubeconfig_errors():
                if restored := contexts.remove_cluster_context(data_dir, file=file):
                    print_note(f'kubectl and pinnace use the context "{restored}" again')
        except Failure as failure:
            failures.append(failure)
    if failures:
        raise failures[0]


def is_dead_context(data_dir: Path) -> bool:
    """Return whether no cluster is in this directory, running or stopped."""
    return not (data_dir / STATE_FILE).exists()


@contextmanager
def translate_kubeconfig_errors(code: ExitCode = ExitCode.SERVER) -> Iterator[None]:
    """Convert errors of reading and writing the kubeconfig into Failure. `code` is the exit code for an invalid file."""
    try:
        yield
    except ConfigError as error:
        raise Failure(str(error), hint=error.hint, code=code) from error
    except OSError as error:
        hint = "free some space" if error.errno in NO_ROOM else "set another file with --kubeconfig or KUBECONFIG"
        raise Failure(f"the kubeconfig cannot be written: {error}", hint=hint) from error
