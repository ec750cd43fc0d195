"""`pinnace restart`: processes of a local cluster, ended and started again."""

from pathlib import Path

from pinnace.cli.command import verb
from pinnace.cli.local import contexts
from pinnace.cli.local.starting import bring_up, names_argument
from pinnace.cli.settings import Settings


@verb(
    "restart",
    examples="""
        pinnace restart                 # whatever does not run, as `pinnace start` does
        pinnace restart scheduler-1     # ends it if it runs, and starts it again
    """,
)
@contexts.data_dir_option
@names_argument
def restart(settings: Settings, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Restart processes of a local cluster, and renew its certificates.

    Those that are named are ended if they run, and started again. Without names, only those start that do not run. They come
    back with the arguments and the configuration that the cluster was started with, and with etcd's data as it was; the command
    returns when they are ready. What starts is the version that this command has, whichever the cluster was begun with.

    A process that is about to end is waited for. One that cannot start keeps back only those that cannot do without it. Where
    another program has taken a process's port meanwhile, the process gets another one.

    Certificates that have ended, or end within 30 days, are made anew before; processes that run take them up.
    """
    bring_up(settings, data_dir, names, verb="restart")
