"""Options that several commands share: where the API servers are, and what virtual machines are like."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from pinnace.api.machines import ARCH, CPU, MEMORY, OS, PODS, REGION, STORAGE, ZONES, MachineOptions, ShapeError, Shapes
from pinnace.client.config import ClientConfig, ConfigError, load

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


Servers = Callable[[], ClientConfig]


def servers(command: Callable[..., None]) -> Callable[..., None]:
    """Adds them to a command, which gets `servers`: where they are, for the asking. Raises click.UsageError when asked."""

    @click.option("--server", help="API servers, HOST:PORT[,HOST:PORT...].  [default: as the client is configured]")
    @click.option("--kubeconfig", type=_FILE, help="The client's configuration.  [default: $PINNACE_CONFIG, or the user's]")
    @wraps(command)
    def with_servers(*args: Any, server: str | None, kubeconfig: Path | None, **options: Any) -> None:
        def configured() -> ClientConfig:
            try:
                return load(server, file=kubeconfig)
            except ConfigError as error:
                raise click.UsageError(f"{error}\nhint: {error.hint}") from None

        command(*args, servers=configured, **options)

    return with_servers


class Machines(NamedTuple):
    """`options`: as given; `shapes`: what they mean."""

    options: MachineOptions
    shapes: Shapes


def machines(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that describe nodes to a command, which gets `machines`. Raises click.BadParameter for what describes
    none."""

    @click.option("--cpu", default="", metavar="QUANTITY", help=f"CPUs of each node.  [default: {CPU}]")
    @click.option("--memory", default="", metavar="QUANTITY", help=f"Memory of each node.  [default: {MEMORY}]")
    @click.option("--pods", default="", metavar="NUMBER", help=f"How many pods a node runs at most.  [default: {PODS}]")
    @click.option("--ephemeral-storage", default="", metavar="QUANTITY", help=f"Local disk of each node.  [default: {STORAGE}]")
    @click.option(
        "--zones",
        default="",
        metavar="NUMBER|NAME,...",
        help=f"Zones, which nodes are dealt out to by their numbers; 0: none.  [default: {','.join(ZONES)}]",
    )
    @click.option("--region", default="", metavar="NAME", help=f"The region of the zones.  [default: {REGION}]")
    @click.option("--labels", default="", metavar="KEY=VALUE,...", help=f"Labels beside those that every {OS}/{ARCH} node has.")
    @click.option("--taints", default="", metavar="KEY[=VALUE]:EFFECT,...", help="Taints with which nodes are created.")
    @click.option(
        "--machines",
        default="",
        metavar="FILE",
        help="Nodes that differ: a list of shapes in YAML, see docs/kubelet.md. The options above hold for what it leaves out.",
    )
    @wraps(command)
    def with_machines(*args: Any, **given: Any) -> None:
        told = {name: given.pop(name) for name in MachineOptions.__dataclass_fields__}
        command(*args, machines=_machines(MachineOptions(**told)), **given)

    return with_machines


def check_registering(found: Machines) -> None:
    """Raises click.BadParameter when a kubelet may not register such nodes."""
    try:
        found.shapes.check_registering()
    except ShapeError as error:
        raise click.BadParameter(str(error), param_hint=error.option) from None


def _machines(options: MachineOptions) -> Machines:
    """The file by its full path: processes run elsewhere."""
    text = ""
    if options.machines:
        path = Path(options.machines)
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
            raise click.BadParameter(f"{path}: {reason}", param_hint="--machines") from None
        options = replace(options, machines=str(path.resolve()))
    try:
        return Machines(options, options.shapes(text))
    except ShapeError as error:
        raise click.BadParameter(str(error), param_hint=error.option) from None
