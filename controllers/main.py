"""The command line of `pinnace-controllers`, and the list of controllers."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.flags import Servers, server_options
from pinnace.client.informer import RestartSupervisor
from pinnace.client.standby import ProgressTimeout
from pinnace.controllers.accounts import RootCAPublisher, ServiceAccountController
from pinnace.controllers.cronjob import CronJobController
from pinnace.controllers.daemonset import DaemonSetController
from pinnace.controllers.deployment import DeploymentController
from pinnace.controllers.disruption import DisruptionController
from pinnace.controllers.endpointslice import EndpointSliceController
from pinnace.controllers.garbagecollector import GarbageCollector
from pinnace.controllers.job import JobController
from pinnace.controllers.manager import ControllerManager
from pinnace.controllers.namespace import NamespaceController
from pinnace.controllers.nodelifecycle import EvictionRates, NodeLifecycleController, NodeLifecycleOptions
from pinnace.controllers.persistentvolume import PersistentVolumeController
from pinnace.controllers.podgc import PodGarbageCollector
from pinnace.controllers.replicaset import ReplicaSetController
from pinnace.controllers.runtime import Controller, ControllerContext, on_stack
from pinnace.controllers.schedulernames import SchedulerNameController
from pinnace.controllers.statefulset import StatefulSetController
from pinnace.controllers.tainteviction import TaintEvictionController
from pinnace.controllers.unenforced import UnenforcedController
from pinnace.runtime import flags, process
from pinnace.runtime.http import StatusServer


def build_controllers(shared: ControllerContext, options: NodeLifecycleOptions, root_ca: str = "") -> Sequence[Controller]:
    """Return all controllers. Their event source components have the same names as in Kubernetes. `root_ca`: PEM certificates
    that pods trust."""
    return [
        NodeLifecycleController(shared.with_component("node-controller"), options),
        TaintEvictionController(shared.with_component("taint-eviction-controller")),
        PodGarbageCollector(shared),
        NamespaceController(shared),
        GarbageCollector(shared.with_component("garbage-collector-controller")),
        ReplicaSetController(shared.with_component("replicaset-controller")),
        DeploymentController(shared.with_component("deployment-controller")),
        StatefulSetController(shared.with_component("statefulset-controller")),
        DaemonSetController(shared.with_component("daemonset-controller")),
        JobController(shared.with_component("job-controller")),
        CronJobController(shared.with_component("cronjob-controller")),
        DisruptionController(shared),
        EndpointSliceController(shared),
        PersistentVolumeController(shared.with_component("persistentvolume-controller")),
        ServiceAccountController(shared),
        RootCAPublisher(shared, root_ca),
        SchedulerNameController(shared.with_component("scheduler-name-controller")),
        UnenforcedController(shared.with_component("unenforced-controller")),
    ]


log = logging.getLogger(__name__)

AMOUNT = click.FloatRange(min=0)
OPTIONS = NodeLifecycleOptions()
RATES = OPTIONS.rates


@click.command("pinnace-controllers", cls=flags.ComponentCommand)
@flags.replica_name_option
@server_options
@click.option(
    "--http", type=flags.parse_address_option, default="127.0.0.1:7483", help="Address of /metrics, /livez and /readyz."
)
@click.option(
    "--node-monitor-grace-period",
    "grace",
    default=OPTIONS.grace,
    type=AMOUNT,
    help="Seconds without a lease after which a node is unreachable.",
)
@click.option(
    "--node-startup-grace-period",
    "startup",
    default=OPTIONS.startup,
    type=AMOUNT,
    help="The same for a node that has never been ready.",
)
@click.option(
    "--node-eviction-rate",
    "eviction",
    default=RATES.eviction,
    type=AMOUNT,
    help="Maximum number of nodes per second and zone whose pods are evicted.",
)
@click.option(
    "--secondary-node-eviction-rate",
    "secondary",
    default=RATES.secondary,
    type=AMOUNT,
    help="The same as --node-eviction-rate for a disrupted zone.",
)
@click.option(
    "--unhealthy-zone-threshold",
    "unhealthy",
    default=RATES.unhealthy,
    type=click.FloatRange(0, 1, min_open=True),
    help="Share of nodes that are not ready at which a zone is disrupted.",
)
@click.option(
    "--large-cluster-size-threshold",
    "large",
    default=RATES.large,
    type=click.IntRange(min=0),
    help="A disrupted zone with this number of nodes or fewer has no evictions.",
)
@click.option(
    "--root-ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Path to the PEM certificates that pods trust, which the ConfigMap kube-root-ca.crt of each namespace contains.",
)
def main(
    name: str,
    servers: Servers,
    http: tuple[str, int],
    root_ca_file: Path | None,
    grace: float,
    startup: float,
    **rates: Any,
) -> None:
    """Reconcile the cluster with its desired state. One replica is the leader; the other replicas are standbys."""
    known = servers()
    options = NodeLifecycleOptions(grace, startup, EvictionRates(**rates))
    root_ca = root_ca_file.read_text() if root_ca_file is not None else ""
    sys.exit(process.run_component(lambda stop: serve(stop, http, known, name, options, root_ca), blame=on_stack))


async def serve(
    stop: asyncio.Event,
    http: tuple[str, int],
    servers: ClientConfig,
    name: str,
    options: NodeLifecycleOptions,
    root_ca: str,
) -> None:
    """Run the controllers until `stop` is set."""
    connection = Connection(servers.endpoints, tls=servers.tls)
    patience = ProgressTimeout()
    lives = RestartSupervisor(
        lambda: ControllerManager(
            Client(connection), name, lambda shared: build_controllers(shared, options, root_ca), patience=patience
        )
    )
    status = StatusServer(*http, lives.checks, asyncio.get_running_loop())
    status.start()
    log.info("controllers %s, status on %s, API servers at %s", name, status.address, ",".join(servers.endpoints))
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(lives.run())
            await stop.wait()
            await lives.now.stop()
            running.cancel()
    finally:
        status.stop()
        await connection.close()


if __name__ == "__main__":
    main()
