"""Which other local clusters run: for who asks about one that is not there, or no longer."""

from pathlib import Path
from shlex import quote

from pinnace.cli.outcomes import Failure
from pinnace.cli.servers import configuration, reach
from pinnace.cli.settings import Settings
from pinnace.client.config import ConfigError
from pinnace.client.contexts import data_dirs
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import FolderError, NoCluster
from pinnace.cluster.folder import Folder
from pinnace.cluster.processes import running
from pinnace.runtime import process


def running_besides(data_dir: Path) -> dict[str, Path]:
    """The folders of the clusters of the configuration of which a process runs, without this one, by their contexts. Raises
    ConfigError."""
    return {name: folder for name, folder in data_dirs().items() if folder != data_dir and _runs(folder)}


def load(settings: Settings, data_dir: Path, verb: str) -> Cluster:
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
