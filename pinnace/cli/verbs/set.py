"""`pinnace set`: single fields of objects; here the images of containers."""

from typing import Any

import click

from pinnace.api.resources import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS
from pinnace.cli import options
from pinnace.cli.changes.compare_and_swap import change_each
from pinnace.cli.changes.edits import pairs_of
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import run
from pinnace.cli.settings import Settings

WITH_IMAGES = (PODS, DEPLOYMENTS, REPLICA_SETS, JOBS)
ALL = "*"


@click.group("set", cls=VerbGroup)
def set() -> None:  # noqa: A001 (verbs are called as they are)
    """Set single fields of objects."""


@verb(
    "image",
    examples="""
        pinnace set image deployment/web nginx=nginx:1.28
        pinnace set image deployments -l app=web '*=nginx:1.28'     # all containers
    """,
)
@arguments.what
@options.selector
def image(settings: Settings, what: tuple[str, ...], selector: str) -> None:
    """Set the images of containers: CONTAINER=IMAGE, where * is all of them."""
    images = pairs_of("the images", [word for word in what if "=" in word])
    query = Query.of([word for word in what if "=" not in word], labels=selector)
    if not images:
        raise usage("which image?", hint="say CONTAINER=IMAGE, such as nginx=nginx:1.28")
    if not selector and not all(target.names for target in query.targets):
        raise usage("which objects?", hint="name them, such as deployment/web, or select them with -l")
    for target in query.targets:
        if target.resource not in WITH_IMAGES:
            raise usage(f"{target.resource.plural} have no containers", hint="pods, deployments, replicasets and jobs have")

    def change(obj: Any) -> str:
        spec = obj.spec if obj.DESCRIPTOR.full_name == PODS.message.DESCRIPTOR.full_name else obj.spec.template.spec
        containers = [*spec.initContainers, *spec.containers]
        for name, wanted in images.items():
            meant = containers if name == ALL else [each for each in containers if each.name == name]
            if not meant:
                raise Failure(f'unable to find container named "{name}"', code=ExitCode.NOT_FOUND)
            for container in meant:
                container.image = wanted
        return "image updated"

    run(settings, lambda session: change_each(session, query, change, needed=True))


set.add_command(image)
