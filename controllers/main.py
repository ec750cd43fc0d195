"""The command line of `pinnace-controllers`, and the list of controllers."""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
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
from pinnace.controllers.apiservices import APIServiceController
from pinnace.controllers.cronjob import CronJobController
from pinnace.controllers.daemonset import DaemonSetController
from pinnace.controllers.deployment import DeploymentController
from pinnace.controllers.disruption import DisruptionController
from pinnace.controllers.endpoints import EndpointsController
from pinnace.controllers.endpointslice import EndpointSliceController
from pinnace.controllers.garbagecollector import GarbageCollector
from pinnace.controllers.horizontalpodautoscaler import AutoscalerOptions, HorizontalPodAutoscalerController
from pinnace.controllers.job import JobController
from pinnace.controllers.manager import ControllerManager
from pinnace.controllers.namespace import NamespaceController
from pinnace.controllers.nodelifecycle import EvictionRates, NodeLifecycleController, NodeLifecycleOptions
from pinnace.controllers.persistentvolume import PersistentVolumeController
from pinnace.controllers.podgc import PodGarbageCollector
from pinnace.controllers.replicacalculator import StartupDelays
from pinnace.controllers.replicaset import ReplicaSetController
from pinnace.controllers.runtime import Controller, ControllerContext, find_sync_on_stack
from pinnace.controllers.schedulernames import SchedulerNameController
from pinnace.controllers.statefulset import StatefulSetController
from pinnace.controllers.tainteviction import TaintEvictionController
from pinnace.controllers.unenforced import UnenforcedKindsController
from pinnace.controllers.volume_protection import VolumeProtectionController
from pinnace.controllers.volume_provisioner import PROVISIONER, VolumeProvisioner
from pinnace.runtime import flags, process
from pinnace.runtime.http import StatusServer

log = logging.getLogger(__name__)

AMOUNT = click.FloatRange(min=0)
OPTIONS = NodeLifecycleOptions()
RATES = OPTIONS.rates
AUTOSCALING = AutoscalerOptions()


def build_controllers(
    shared: ControllerContext,
    options: NodeLifecycleOptions,
    root_ca: str = "",
    autoscaling: AutoscalerOptions = AUTOSCALING,
    volumes: Path | None = None,
) -> Sequence[Controller]:
    """Return all controllers. Their event source components have the same names as in Kubernetes. `root_ca`: PEM certificates
    that pods trust. `volumes`: the directory of provisioned volumes, or None if none are provisioned."""
    provisioners = [] if volumes is None else [VolumeProvisioner(shared.with_component(PROVISIONER), volumes)]
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
        EndpointsController(shared.with_component("endpoint-controller")),
        PersistentVolumeController(shared.with_component("persistentvolume-controller")),
        VolumeProtectionController(shared),
        ServiceAccountController(shared),
        RootCAPublisher(shared, root_ca),
        SchedulerNameController(shared.with_component("scheduler-name-controller")),
        HorizontalPodAutoscalerController(shared.with_component("horizontal-pod-autoscaler"), autoscaling),
        APIServiceController(shared.with_component("apiservice-controller")),
        UnenforcedKindsController(shared.with_component("unenforced-controller")),
        *provisioners,
    ]


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
    "--horizontal-pod-autoscaler-sync-period",
    "sync_period",
    default=AUTOSCALING.sync_period,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds between two computations of an autoscaler.",
)
@click.option(
    "--horizontal-pod-autoscaler-downscale-stabilization",
    "stabilization",
    default=AUTOSCALING.downscale_stabilization,
    type=AMOUNT,
    help="Seconds for which an autoscaler keeps the largest recent number of replicas.",
)
@click.option(
    "--horizontal-pod-autoscaler-tolerance",
    "tolerance",
    default=AUTOSCALING.tolerance,
    type=AMOUNT,
    help="Relative difference of a metric from its target that changes nothing.",
)
@click.option(
    "--horizontal-pod-autoscaler-cpu-initialization-period",
    "cpu_initialization",
    default=AUTOSCALING.delays.cpu_initialization,
    type=AMOUNT,
    help="Seconds after the start of a pod in which its cpu usage may be ignored.",
)
@click.option(
    "--horizontal-pod-autoscaler-initial-readiness-delay",
    "initial_readiness",
    default=AUTOSCALING.delays.initial_readiness,
    type=AMOUNT,
    help="Seconds after the start of a pod in which it counts as never ready, if it turns unready.",
)
@click.option(
    "--root-ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Path to the PEM certificates that pods trust, which the ConfigMap kube-root-ca.crt of each namespace contains.",
)
@click.option(
    "--volumes-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Path to the directory of the volumes of the StorageClass standard, which all kubelets must share.  "
    "[default: no volumes are provisioned]",
)
def main(
    name: str,
    servers: Servers,
    http: tuple[str, int],
    root_ca_file: Path | None,
    volumes_dir: Path | None,
    grace: float,
    startup: float,
    sync_period: float,
    stabilization: float,
    tolerance: float,
    cpu_initialization: float,
    initial_readiness: float,
    **rates: Any,
) -> None:
    """Reconcile the cluster with its desired state. One replica is the leader; the other replicas are standbys."""
    known = servers()
    options = NodeLifecycleOptions(grace, startup, EvictionRates(**rates))
    delays = StartupDelays(cpu_initialization, initial_readiness)
    autoscaling = AutoscalerOptions(sync_period, stabilization, tolerance, delays)
    root_ca = root_ca_file.read_text() if root_ca_file is not None else ""
    volumes = volumes_dir.resolve() if volumes_dir is not None else None

    def build(shared: ControllerContext) -> Sequence[Controller]:
        return build_controllers(shared, options, root_ca, autoscaling, volumes)

    sys.exit(process.run_component(lambda stop: serve(stop, http, known, name, build), blame=find_sync_on_stack))


async def serve(
    stop: asyncio.Event,
    http: tuple[str, int],
    servers: ClientConfig,
    name: str,
    build: Callable[[ControllerContext], Sequence[Controller]],
) -> None:
    """Run the controllers until `stop` is set."""
    connection = Connection(servers.endpoints, tls=servers.tls)
    patience = ProgressTimeout()
    lives = RestartSupervisor(lambda: ControllerManager(Client(connection), name, build, patience=patience))
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
