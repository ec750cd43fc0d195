"""`pinnace start`: a local cluster that was stopped, or whose processes were killed."""

from pathlib import Path

from pinnace.cli.command import verb
from pinnace.cli.local import contexts
from pinnace.cli.local.starting import bring_up, names_argument
from pinnace.cli.settings import Settings


@verb(
    "start",
    examples="""
        pinnace start                   # whatever does not run
        pinnace start scheduler-1       # only this one
    """,
)
@contexts.data_dir_option
@names_argument
def start(settings: Settings, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Start the processes of a local cluster that do not run.

    They come back with everything that the cluster had: its objects, its size, its configuration. So does a cluster after
    `pinnace stop`, after a reboot, or when some of its processes were killed. A process that runs is not touched; one that is
    about to end is waited for. `pinnace restart NAME` ends one that runs, and starts it again.
    """
    bring_up(settings, data_dir, names, verb="start")
