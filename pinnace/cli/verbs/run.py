"""`pinnace run`: a pod without a manifest."""

import click

from pinnace.cli.changes import generators
from pinnace.cli.changes.creating import How, create_one, how_options
from pinnace.cli.changes.edits import pairs_of
from pinnace.cli.command import verb
from pinnace.cli.outcomes import usage
from pinnace.cli.settings import Settings


@verb(
    "run",
    examples="""
        pinnace run web --image nginx:1.27 --port 80
        pinnace run web --image nginx:1.27 --dry-run=client -o yaml > web.yaml
        pinnace run clock --image busybox --restart Never --command -- sh -c 'date; sleep 5'
    """,
)
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENT...]")
@click.option("--image", required=True, metavar="IMAGE", help="The image of the container.")
@click.option("--command", "is_command", is_flag=True, help="The arguments are the command, not those of the image's command.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="An environment variable. May be repeated.")
@click.option("-l", "--labels", default="", metavar="LABEL=VALUE[,...]", help="Labels of the pod, instead of run=NAME.")
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="A port that the container exposes.")
@click.option("--restart", type=click.Choice(["Always", "OnFailure", "Never"]), default="Always", help="The restart policy.")
@how_options
def run(
    settings: Settings,
    name: str,
    arguments: tuple[str, ...],
    image: str,
    is_command: bool,
    env: tuple[str, ...],
    labels: str,
    port: int | None,
    restart: str,
    dry_run: str,
    output: str | None,
) -> None:
    """Create a pod of one container from an image."""
    if is_command and not arguments:
        raise usage("--command: no command is given", hint="write it behind --: pinnace run NAME --image IMAGE --command -- ls")
    given = pairs_of("--labels", labels.split(",")) if labels else None
    variables = list(pairs_of("--env", env).items())
    create_one(
        settings,
        lambda namespace: generators.pod(
            name,
            namespace,
            image,
            arguments=arguments,
            is_command=is_command,
            env=variables,
            labels=given,
            port=port or 0,
            restart=restart,
        ),
        How(dry_run, output),
    )
