"""`pinnace expose`: a service in front of the pods of an object."""

from typing import Any

import click

from pinnace.api.core_v1_pb2 import PodSpec
from pinnace.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS, SERVICES
from pinnace.cli.changes import generators
from pinnace.cli.changes.creating import How, Wanted, create_all, how_options
from pinnace.cli.changes.edits import pairs_of
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query
from pinnace.cli.objects.targets import Item
from pinnace.cli.outcomes import usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings

TYPES = ("ClusterIP", "NodePort", "LoadBalancer")
EXPOSABLE = (PODS, DEPLOYMENTS, REPLICA_SETS, SERVICES)


@verb(
    "expose",
    examples="""
        pinnace expose deployment/web --port 80 --target-port 8080
        pinnace expose pod web --port 80 --name front
    """,
)
@arguments.what
@click.option(
    "--port", type=click.IntRange(1, 65535), default=None, help="The port of the service; by default the containers'."
)
@click.option("--target-port", default="", metavar="PORT|NAME", help="The port of the pods, if it is another one.")
@click.option("--protocol", type=click.Choice(["TCP", "UDP", "SCTP"]), default="TCP", show_default=True)
@click.option("--name", default="", help="The name of the service, if it is not that of the object.")
@click.option("--type", "type_", type=click.Choice(TYPES), default=TYPES[0], show_default=True)
@click.option("--selector", default="", metavar="LABEL=VALUE[,...]", help="The pods, if they are not those of the object.")
@click.option("-l", "--labels", default="", metavar="LABEL=VALUE[,...]", help="Labels of the service, instead of the object's.")
@how_options
def expose(
    settings: Settings,
    what: tuple[str, ...],
    port: int | None,
    target_port: str,
    protocol: str,
    name: str,
    type_: str,
    selector: str,
    labels: str,
    dry_run: str,
    output: str | None,
) -> None:
    """Create a service for a pod, deployment, replica set or service.

    The service has EndpointSlices. Nothing routes its traffic yet.
    """
    query = Query.of(what)
    if len(query.targets) != 1 or len(query.targets[0].names) != 1:
        raise usage("one object is exposed", hint="name it, such as deployment/web")
    (target,) = query.targets
    if target.resource not in EXPOSABLE:
        kinds = ", ".join(resource.plural for resource in EXPOSABLE)
        raise usage(f"{target.resource.plural} cannot be exposed", hint=f"these can: {kinds}")

    async def create(session: Session) -> None:
        found: Any = await session.client.of(target.resource).get(target.names[0], session.namespace)
        chosen = pairs_of("--selector", selector.split(",")) if selector else _selector(found)
        if not chosen:
            raise usage(f"{target.names[0]} selects no pods by equality of labels", hint="name them with --selector")
        ports = [(port, target_port, protocol)] if port is not None else [(each, "", own) for each, own in _ports(found)]
        if not ports:
            raise usage("no port: the containers name none", hint="say --port PORT")
        given = pairs_of("--labels", labels.split(",")) if labels else dict(found.metadata.labels)
        made: Item = generators.service(name or target.names[0], session.namespace, chosen, ports, type_, given)
        await create_all(session, [Wanted(made)], How(dry_run, output))

    run(settings, create)


def _selector(found: Any) -> dict[str, str]:
    """The labels by which the pods of an object are found. Expressions cannot be said in a service."""
    if found.DESCRIPTOR.full_name == PODS.message.DESCRIPTOR.full_name:
        return dict(found.metadata.labels)
    if found.DESCRIPTOR.full_name == SERVICES.message.DESCRIPTOR.full_name:
        return dict(found.spec.selector)
    return {} if found.spec.selector.matchExpressions else dict(found.spec.selector.matchLabels)


def _ports(found: Any) -> list[tuple[int, str]]:
    """(port, protocol) of the containers, or of the service."""
    if found.DESCRIPTOR.full_name == SERVICES.message.DESCRIPTOR.full_name:
        return [(each.port, each.protocol or "TCP") for each in found.spec.ports]
    spec: PodSpec = found.spec if found.DESCRIPTOR.full_name == PODS.message.DESCRIPTOR.full_name else found.spec.template.spec
    return [(port.containerPort, port.protocol or "TCP") for container in spec.containers for port in container.ports]
