"""`pinnace create`: makes objects that are not there yet."""

import click
from click.shell_completion import CompletionItem

from pinnace.api.manifest import Validate
from pinnace.cli import options
from pinnace.cli.changes import generators
from pinnace.cli.changes.apply_decisions import in_order
from pinnace.cli.changes.creating import CLIENT, How, Wanted, create_all, create_one, how_options, report
from pinnace.cli.command import DefaultGroup, verb
from pinnace.cli.objects.manifests import place_all, read, where
from pinnace.cli.objects.targets import parse_resource
from pinnace.cli.outcomes import usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings

SIMPLE = ("namespace", "deployment", "job")
"""What can be created without a manifest."""


class Kinds(DefaultGroup):
    """Its verbs are kinds, and go by all the names of these."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] != self.default and not args[0].startswith("-") and not ctx.resilient_parsing:
            args = [_simple(args[0]), *args[1:]]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [each for each in super().shell_complete(ctx, incomplete) if each.value != self.default]


def _simple(word: str) -> str:
    """The verb of a kind that needs no manifest. Raises Failure (usage) for any other, before its flags are looked at: they are
    kubectl's for that kind."""
    kind = parse_resource(word).kind.lower()
    if kind not in SIMPLE:
        hint = f"`pinnace create -f FILE`; `pinnace explain {kind}` shows what to write into it"
        raise usage(f'"{word}" needs a manifest', hint=hint)
    return kind


@click.group("create", cls=Kinds, default="file")
def create() -> None:
    """Create objects from manifests, or simple ones without.

    `pinnace create -f FILE` is short for `pinnace create file -f FILE`.
    """


@verb(
    "file",
    examples="""
        pinnace create -f job.yaml                        # also with metadata.generateName, again and again
        pinnace create -f job.yaml -o name
        pinnace create -f pods.yaml --dry-run=server      # would it be accepted?
    """,
)
@click.argument("what", nargs=-1, metavar="")
@options.filenames
@options.recursive
@options.validate
@how_options
def file(
    settings: Settings,
    what: tuple[str, ...],
    filenames: tuple[str, ...],
    recursive: bool,
    validate: Validate,
    dry_run: str,
    output: str | None,
) -> None:
    """Create the objects of manifests. One that is there already is refused: `apply` changes it."""
    if what:
        hint = f"say -f FILE, or one of {', '.join(SIMPLE)} and its name before the flags"
        raise usage(f'"{what[0]}" is neither a flag nor a manifest', hint=hint)
    if not filenames:
        raise usage("which manifests?", hint="name them with -f FILE; -f - reads stdin")
    manifests = in_order(read(filenames, recursive=recursive, validate=validate))
    how = How(dry_run, output)

    async def create_them(session: Session) -> None:
        place_all(manifests, session)
        wanted = [Wanted((manifest.resource, manifest.obj), where(manifest)) for manifest in manifests]
        await create_all(session, wanted, how)

    if dry_run == CLIENT:
        report([(manifest.resource, manifest.obj) for manifest in manifests], how)
    else:
        run(settings, create_them)


@verb("namespace", examples="pinnace create namespace team-a")
@click.argument("name")
@how_options
def namespace(settings: Settings, name: str, dry_run: str, output: str | None) -> None:
    """Create a namespace."""
    create_one(settings, lambda _: generators.namespace(name), How(dry_run, output))


@verb(
    "deployment",
    examples="""
        pinnace create deployment web --image nginx:1.27 --replicas 3
        pinnace create deployment web --image nginx:1.27 --dry-run=client -o yaml > web.yaml
        pinnace create deployment clock --image busybox -- sh -c 'while true; do date; sleep 1; done'
    """,
)
@click.argument("name")
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARGUMENT...]]")
@click.option("--image", "images", required=True, multiple=True, metavar="IMAGE", help="Of a container; may be repeated.")
@click.option(
    "-r", "--replicas", type=click.IntRange(0, options.MOST_REPLICAS), default=1, show_default=True, help="How many pods."
)
@how_options
def deployment(
    settings: Settings,
    name: str,
    command: tuple[str, ...],
    images: tuple[str, ...],
    replicas: int,
    dry_run: str,
    output: str | None,
) -> None:
    """Create a deployment. Its pods have a container for each image, and the label app=NAME."""
    if command and len(images) > 1:
        raise usage(
            "a command is for one container, and there are several images", hint="write a manifest: --dry-run=client -o yaml"
        )
    how = How(dry_run, output)
    create_one(settings, lambda space: generators.deployment(name, space, images, replicas, command), how)


@verb("job", examples="pinnace create job pi --image perl -- perl -Mbignum=bpi -wle 'print bpi(2000)'")
@click.argument("name")
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARGUMENT...]]")
@click.option("--image", required=True, metavar="IMAGE", help="What its container runs.")
@how_options
def job(settings: Settings, name: str, command: tuple[str, ...], image: str, dry_run: str, output: str | None) -> None:
    """Create a job of one pod.

    Where containers are simulated they run for ever, whatever the command: the annotation pinnace.io/run-seconds of the pod
    ends them, or `pinnace up --stages fast` or `realistic` those of all jobs (docs/kubelet.md). With --runtime process they run
    the command.
    """
    create_one(settings, lambda space: generators.job(name, space, image, command), How(dry_run, output))


for each in (file, namespace, deployment, job):
    create.add_command(each)
