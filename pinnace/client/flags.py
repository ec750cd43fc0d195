"""Command-line options that several commands share: API servers, and the shapes of virtual nodes."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from pinnace.api.machines import ARCH, CPU, MEMORY, OS, PODS, REGION, STORAGE, ZONES, MachineOptions, ShapeError, Shapes
from pinnace.client.config import ClientConfig, ConfigError, load_config

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


Servers = Callable[[], ClientConfig]


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --server and --kubeconfig to a command. The command receives `servers`, a function that loads the client's
    configuration and raises click.UsageError."""

    @click.option("--server", help="API servers: HOST:PORT[,HOST:PORT...].  [default: from the client's configuration]")
    @click.option("--kubeconfig", type=_FILE, help="The kubeconfig.  [default: $KUBECONFIG or ~/.kube/config]")
    @wraps(command)
    def with_servers(*args: Any, server: str | None, kubeconfig: Path | None, **options: Any) -> None:
        def configured() -> ClientConfig:
            try:
                return load_config(server, file=kubeconfig)
            except ConfigError as error:
                raise click.UsageError(f"{error}\nhint: {error.hint}") from None

        command(*args, servers=configured, **options)

    return with_servers


class NodeShapeOptions(NamedTuple):
    """`options`: the options as given on the command line. `shapes`: the parsed options."""

    options: MachineOptions
    shapes: Shapes


def machine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that describe nodes to a command, which receives `machines`. Raises click.BadParameter for invalid
    values."""

    @click.option("--cpu", default="", metavar="QUANTITY", help=f"CPUs of each node.  [default: {CPU}]")
    @click.option("--memory", default="", metavar="QUANTITY", help=f"Memory of each node.  [default: {MEMORY}]")
    @click.option("--pods", default="", metavar="NUMBER", help=f"Maximum number of pods per node.  [default: {PODS}]")
    @click.option("--ephemeral-storage", default="", metavar="QUANTITY", help=f"Local disk of each node.  [default: {STORAGE}]")
    @click.option(
        "--zones",
        default="",
        metavar="NUMBER|NAME,...",
        help="Zones of the nodes, assigned by the number in the node's name; 0 disables zones, except for `node add`.  "
        f"[default: {','.join(ZONES)}]",
    )
    @click.option("--region", default="", metavar="NAME", help=f"The region of the zones.  [default: {REGION}]")
    @click.option(
        "--labels", default="", metavar="KEY=VALUE,...", help=f"Labels besides the default labels of {OS}/{ARCH} nodes."
    )
    @click.option("--taints", default="", metavar="KEY[=VALUE]:EFFECT,...", help="Taints that new nodes are registered with.")
    @click.option(
        "--machines",
        default="",
        metavar="FILE",
        help="A YAML file with a list of node shapes, see docs/kubelet.md. The other options are its defaults.",
    )
    @wraps(command)
    def with_machines(*args: Any, **given: Any) -> None:
        told = {name: given.pop(name) for name in MachineOptions.__dataclass_fields__}
        command(*args, machines=_parse_machine_options(MachineOptions(**told)), **given)

    return with_machines


def check_node_labels(found: NodeShapeOptions) -> None:
    """Raise click.BadParameter if kubelets are not allowed to register nodes with these labels."""
    try:
        found.shapes.check_registering()
    except ShapeError as error:
        raise click.BadParameter(str(error), param_hint=error.option) from None


def _parse_machine_options(options: MachineOptions) -> NodeShapeOptions:
    """Parse the options. The path of the file becomes absolute, because components have different working directories."""
    text = ""
    if options.machines:
        path = Path(options.machines)
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not valid UTF-8"
            raise click.BadParameter(f"{path}: {reason}", param_hint="--machines") from None
        options = replace(options, machines=str(path.resolve()))
    try:
        return NodeShapeOptions(options, options.shapes(text))
    except ShapeError as error:
        raise click.BadParameter(str(error), param_hint=error.option) from None
