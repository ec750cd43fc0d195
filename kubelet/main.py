"""`pinnace-kubelet`: the command line of a fleet of virtual nodes."""

import asyncio
import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, TypeAlias

import click

from pinnace.api.resources import SERVICES
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.flags import NodeShapeOptions, Servers, check_node_labels, machine_options, server_options
from pinnace.client.informer import RestartSupervisor
from pinnace.kubelet.fleet import Fleet
from pinnace.kubelet.registration import FleetMachine, KubeletEndpoint
from pinnace.kubelet.run_log import LoggedRuntime, RunLog
from pinnace.kubelet.runtime.by_image import MeterByImage, RuntimeByImage, RuntimeChooser, StreamsByImage, VolumesByImage
from pinnace.kubelet.runtime.interface import Runtime, Streams
from pinnace.kubelet.runtime.process.host_names import ClusterDns
from pinnace.kubelet.runtime.process.images import ImageTable, load_images
from pinnace.kubelet.runtime.process.meter import ProcessMeter
from pinnace.kubelet.runtime.process.mounts import can_mount
from pinnace.kubelet.runtime.process.plan import NO_IMAGES
from pinnace.kubelet.runtime.process.pod_volumes import ProcessVolumeManager
from pinnace.kubelet.runtime.process.root import SHIM_ENVIRONMENT, RuntimeRoot
from pinnace.kubelet.runtime.process.runtime import ProcessRuntime
from pinnace.kubelet.runtime.process.streams import ProcessStreams
from pinnace.kubelet.runtime.simulated import SimulatedStreams
from pinnace.kubelet.runtime.simulated_machine import PodSnapshot
from pinnace.kubelet.runtime.simulated_runtime import (
    NO_STAGES,
    PodVolumeManager,
    SimulatedRuntime,
    SimulatedVolumes,
    VolumeDelays,
)
from pinnace.kubelet.runtime.stages import SETS, Behaviour, Stages, StagesError
from pinnace.kubelet.runtime.stages import load_stages as load_stages
from pinnace.kubelet.server import KubeletServer
from pinnace.kubelet.service_variables import ServiceVariables, VariableSource, no_services
from pinnace.kubelet.stats import DeclaredUsageMeter, UsageMeter
from pinnace.runtime import flags, process
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.configuration import ConfigurationError
from pinnace.runtime.http import StatusServer
from pinnace.runtime.tracing import Tracer

log = logging.getLogger(__name__)


FLEET_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
"""The name is used as a label value."""
FindPod = Callable[[str], PodSnapshot | None]
"""Returns the pod with this uid, if the kubelet runs it."""
Make: TypeAlias = Callable[[VariableSource, Client], tuple[Runtime, PodVolumeManager]]


@click.command("pinnace-kubelet", cls=flags.ComponentCommand)
@click.option("--name", default=socket.gethostname, show_default="the host name", help="Name of the fleet.")
@server_options
@click.option("--nodes", default=10, type=click.IntRange(min=0), help="How many nodes the fleet registers.")
@click.option("--node-prefix", help="Prefix of node names, followed by a number.  [default: the fleet's name and a dash]")
@click.option("--first-index", default=0, type=click.IntRange(min=0), help="Number of the first node.")
@click.option(
    "--http", type=flags.parse_address_option, default="127.0.0.1:7482", help="Address of /metrics, /livez and /readyz."
)
@machine_options
@click.option(
    "--start-delay",
    default=0.0,
    type=click.FloatRange(min=0),
    help="Seconds from the creation of a simulated container until it runs.",
)
@click.option("--attach-delay", default=0.0, type=click.FloatRange(min=0), help="Seconds to attach a claim to a node.")
@click.option("--mount-delay", default=0.0, type=click.FloatRange(min=0), help="Seconds to mount the claims of a pod.")
@click.option(
    "--runtime",
    type=click.Choice(["fake", "process"]),
    default="fake",
    help="What containers are: pretended; or processes of this machine, which run as the user that the kubelet runs as.",
)
@click.option(
    "--stages",
    metavar="|".join((*SETS, "FILE")),
    help="Behavior of simulated containers: see docs/kubelet.md.  [default: they run]",
)
@click.option(
    "--images",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Commands of images for the process runtime: see docs/process-runtime.md.  [default: a few are built in]",
)
@click.option(
    "--cluster-dns",
    metavar="IP",
    help="Address of the cluster's DNS server (port 53) for pods of the process runtime.  [default: none]",
    show_default=False,
)
@click.option("--cluster-domain", default="cluster.local", help="Domain of the cluster, which pods search for names.")
@click.option("--root-dir", type=click.Path(path_type=Path, file_okay=False), help="Where the process runtime keeps its pods.")
@click.option(
    "--listen", type=flags.parse_address_option, help="Address for logs, exec and top of API servers.  [default: nowhere]"
)
@click.option(
    "--advertise-address",
    "advertised",
    metavar="HOST",
    help="Where API servers reach it.  [default: the host of --listen; where that is all addresses, the host name]",
)
@click.option(
    "--run-log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to which the times of running pods are appended, for `pinnace check`.",
)
@flags.tracing_endpoint_option
def main(
    name: str,
    servers: Servers,
    nodes: int,
    node_prefix: str | None,
    first_index: int,
    http: tuple[str, int],
    start_delay: float,
    attach_delay: float,
    mount_delay: float,
    runtime: str,
    stages: str | None,
    images: Path | None,
    cluster_dns: str | None,
    cluster_domain: str,
    root_dir: Path | None,
    listen: tuple[str, int] | None,
    advertised: str | None,
    run_log: Path | None,
    tracing_endpoint: str | None,
    machines: NodeShapeOptions,
) -> None:
    """A fleet of virtual nodes: registers them, keeps them alive, and runs the pods that are bound to them.

    Their containers are pretended, unless --runtime says otherwise.
    """
    if not FLEET_NAME.fullmatch(name):
        raise click.BadParameter(f'"{name}" cannot be the value of a label', param_hint="--name")
    known = servers()
    prefix = f"{name}-" if node_prefix is None else node_prefix
    check_node_labels(machines)
    numbers = range(first_index, first_index + nodes)
    own = {f"{prefix}{index}": machines.shapes.shape_of_node(index) for index in numbers}
    machine = FleetMachine(machines.options.shape(), runtime, local=runtime == "process", own=own)
    tracer = flags.connect_tracer_option(tracing_endpoint, "kubelet", name)
    simulation = SimulationOptions(
        Behaviour(start_seconds=start_delay), _read_stages(stages), VolumeDelays(attach_delay, mount_delay)
    )
    dns = ClusterDns(_parse_ip(cluster_dns), cluster_domain)
    with _open_runtime(runtime, root_dir, simulation, images, dns) as (make, streams, meter), _run_log(run_log) as witness:
        options = FleetOptions(
            name=name,
            servers=known,
            own=list(own),
            http=http,
            machine=machine,
            make=lambda services, client: _log_runs(make(services, client), witness) if witness else make(services, client),
            meter=meter,
            serving=_stream_server_options(listen, advertised, streams) if listen is not None else None,
            tracer=tracer,
        )
        code = process.run_component(lambda stop: serve(stop, options))
    sys.exit(code)


@dataclass(frozen=True, slots=True)
class StreamServerOptions:
    """The address of the server for logs, exec and stats. `advertised`: the host in Node objects, if it is another."""

    streams: Callable[[FindPod], Streams]
    host: str
    port: int
    advertised: str | None

    def advertise(self, bound: KubeletEndpoint) -> KubeletEndpoint:
        everywhere = self.host in ("0.0.0.0", "::")
        return bound._replace(host=self.advertised or (socket.gethostname() if everywhere else bound.host))


class SimulationOptions(NamedTuple):
    """How simulated containers behave."""

    behaviour: Behaviour
    stages: Stages
    delays: VolumeDelays

    def runtime(self) -> SimulatedRuntime:
        return SimulatedRuntime(self.behaviour, self.stages)

    def volumes(self) -> SimulatedVolumes:
        return SimulatedVolumes(self.delays)

    def streams(self, find: FindPod) -> SimulatedStreams:
        return SimulatedStreams(find, self.stages)


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The parsed command line. `own`: names of the nodes that the fleet creates. `serving`: None if there is no server. `make`:
    creates runtime and volumes, again each time the fleet restarts within the process, because they keep state.
    """

    name: str
    servers: ClientConfig
    own: Sequence[str]
    http: tuple[str, int]
    machine: FleetMachine
    make: Make
    meter: UsageMeter
    serving: StreamServerOptions | None
    tracer: Tracer


async def serve(stop: asyncio.Event, options: FleetOptions) -> None:
    """Run the fleet until `stop` is set."""
    servers, machine, server = options.servers, options.machine, None
    if (serving := options.serving) is not None:
        server = KubeletServer(serving.streams(lambda uid: lives.now.find_pod(uid)), servers.tls)
        machine = machine._replace(endpoint=serving.advertise(server.bind(serving.host, serving.port)))
    connection = Connection(servers.endpoints, tls=servers.tls)

    def fleet() -> Fleet:
        client = Client(connection)
        services = ServiceVariables(client.of(SERVICES)) if machine.local else None
        runtime, volumes = options.make(services or no_services, client)
        return Fleet(
            options.name, options.own, machine, client, runtime,
            volumes=volumes, meter=options.meter, services=services, tracer=options.tracer,
        )  # fmt: skip

    lives = RestartSupervisor(fleet)
    if server is not None:
        await server.start(lambda: lives.now.stats)
    status = StatusServer(*options.http, lives.checks, asyncio.get_running_loop())
    status.start()
    endpoints = ",".join(servers.endpoints)
    log.info("fleet %s of %d nodes, status on %s, API servers at %s", options.name, len(options.own), status.address, endpoints)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(lives.run())
            await stop.wait()
            await lives.now.close()
            running.cancel()
    finally:
        status.stop()
        if server is not None:
            await server.stop()
        await connection.close()
        await asyncio.to_thread(options.tracer.close)


def _stream_server_options(
    listen: tuple[str, int], advertised: str | None, streams: Callable[[FindPod], Streams]
) -> StreamServerOptions:
    host, port = listen
    return StreamServerOptions(streams, host.strip("[]"), port, advertised)


@contextmanager
def _open_runtime(
    kind: str, folder: Path | None, simulation: SimulationOptions, images: Path | None, dns: ClusterDns
) -> Iterator[tuple[Make, Callable[[FindPod], Streams], UsageMeter]]:
    if kind == "fake":
        if images is not None:
            raise click.UsageError("--images describes containers of the process runtime: use it with --runtime process")
        yield (
            lambda services, client: (simulation.runtime(), simulation.volumes()),
            simulation.streams,
            DeclaredUsageMeter(SYSTEM_CLOCK),
        )
        return
    if simulation.stages is not NO_STAGES:
        raise click.UsageError("--stages describes simulated containers: the process runtime runs the containers' commands")
    if folder is None:
        raise click.UsageError("--runtime process requires --root-dir, a directory for its pods")
    table = _read_images(images)
    try:
        root = RuntimeRoot(folder)
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--root-dir") from None
    chooser, mounts = RuntimeChooser(root, table), can_mount(SHIM_ENVIRONMENT)

    def make(services: VariableSource, client: Client) -> tuple[Runtime, PodVolumeManager]:
        volumes = ProcessVolumeManager(
            root, lambda resource, name, namespace: client.of(resource).get(name, namespace), client.request_token
        )
        runtime = ProcessRuntime(root, services=services, objects=volumes.objects, images=table, mounts=mounts, dns=dns)
        return (
            RuntimeByImage(runtime, simulation.runtime(), chooser),
            VolumesByImage(volumes, simulation.volumes(), chooser),
        )

    with closing(root):
        meter = MeterByImage(ProcessMeter(root), DeclaredUsageMeter(SYSTEM_CLOCK), chooser)
        yield make, lambda find: StreamsByImage(ProcessStreams(root), simulation.streams(find), chooser), meter


def _parse_ip(given: str | None) -> str:
    try:
        return str(ip_address(given)) if given else ""
    except ValueError:
        raise click.BadParameter(f'"{given:.100}" is not an IP address', param_hint="--cluster-dns") from None


def _read_images(path: Path | None) -> ImageTable:
    try:
        return load_images(path) if path is not None else NO_IMAGES
    except (ConfigurationError, OSError) as error:
        raise click.BadParameter(str(error), param_hint="--images") from None


def _read_stages(name: str | None) -> Stages:
    try:
        return load_stages(name) if name is not None else NO_STAGES
    except StagesError as error:
        raise click.BadParameter(f"\n{error}", param_hint="--stages") from None


def _log_runs(made: tuple[Runtime, PodVolumeManager], witness: RunLog) -> tuple[Runtime, PodVolumeManager]:
    runtime, volumes = made
    witness.begin_process()
    return LoggedRuntime(runtime, witness), volumes


def _run_log(path: Path | None) -> AbstractContextManager[RunLog | None]:
    try:
        return RunLog(path) if path else nullcontext()
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--run-log") from None


if __name__ == "__main__":
    main()
