"""The verbs `create`, `run` and `expose`: create objects from flags or files, or print them."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from pinnace.api.core_v1_pb2 import PodSpec
from pinnace.api.manifest import Validate
from pinnace.api.resources import (
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    SERVICES,
)
from pinnace.cli.changes import pairs_of
from pinnace.cli.command import DefaultGroup, verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.generators import (
    data_of,
    new_config_map,
    new_deployment,
    new_job,
    new_namespace,
    new_pod,
    new_secret,
    new_service,
    new_service_account,
)
from pinnace.cli.objects.manifests import in_order, place_all, read, where
from pinnace.cli.objects.query import AT_ONCE, Item, Query, parse_resource, reference
from pinnace.cli.outcomes import usage
from pinnace.cli.output import documents
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import out
from pinnace.client.errors import ApiError

CLIENT, SERVER = "client", "server"


class CreateOptions(NamedTuple):
    """`output`: yaml, json or name; None: a line of text."""

    dry_run: str
    output: str | None


class NewObject(NamedTuple):
    """An object to create, and its location in a file."""

    item: Item
    where: str = ""


def how_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `-o` and `--dry-run` to a verb that creates objects."""
    output = click.option(
        "-o", "--output", type=click.Choice(["yaml", "json", "name"]), help="Print the created objects in this format."
    )
    dry_run = click.option(
        "--dry-run",
        type=click.Choice(["none", CLIENT, SERVER]),
        default="none",
        help="client: contact no server. server: submit a request that the server validates and does not persist.",
    )
    return output(dry_run(function))


def create_one(settings: Settings, make: Callable[[str], Item], how: CreateOptions) -> None:
    """Creates the object that `make` returns for a namespace; "" when the object is only printed."""
    if how.dry_run == CLIENT:
        report([make(settings.namespace or "")], how)
    else:
        run(settings, lambda session: create_all(session, [NewObject(make(session.namespace))], how))


async def create_all(session: Session, wanted: Sequence[NewObject], how: CreateOptions) -> None:
    """Creates objects kind by kind, in this order. A failure does not stop the others."""
    session.wait_for_each(len(wanted))
    limit = asyncio.Semaphore(AT_ONCE)

    async def attempt(each: NewObject) -> Item | ApiError:
        resource, obj = each.item
        async with limit:
            try:
                return resource, await session.client.of(resource).create(obj, dry_run=how.dry_run == SERVER)
            except ApiError as error:
                return error

    created: list[Item] = []
    for _, group in groupby(wanted, key=lambda each: each.item[0]):
        same_kind = list(group)
        for each, outcome in zip(same_kind, await asyncio.gather(*map(attempt, same_kind)), strict=True):
            if isinstance(outcome, ApiError):
                session.failed(outcome, each.where)
            else:
                created.append(outcome)
    report(created, how)


def report(created: Sequence[Item], how: CreateOptions) -> None:
    if how.output is None:
        said = f" ({how.dry_run} dry run)" if how.dry_run in (CLIENT, SERVER) else ""
        out("".join(f"{reference(resource, obj.metadata.name)} created{said}\n" for resource, obj in created))
    elif len(created) == 1:
        out(documents.one(how.output, created[0]))
    elif created:
        out(documents.many(how.output, created))


SIMPLE = ("namespace", "deployment", "job", "configmap", "secret", "serviceaccount")
"""Kinds that can be created without a manifest."""


class Kinds(DefaultGroup):
    """A group whose subcommands are kinds, under all of their names."""

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
    """Create resources from files, stdin or flags.

    `pinnace create -f FILE` is short for `pinnace create file -f FILE`.
    """


@verb(
    "file",
    examples="""
        pinnace create -f job.yaml                        # with metadata.generateName, each run creates an object
        pinnace create -f job.yaml -o name
        pinnace create -f pods.yaml --dry-run=server      # validate on the server, write nothing
    """,
)
@click.argument("what", nargs=-1, metavar="")
@arguments.filenames
@arguments.recursive
@arguments.validate
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
    """Create the objects of manifests. Objects that exist are rejected; use `pinnace apply` to change them."""
    if what:
        hint = f"say -f FILE, or one of {', '.join(SIMPLE)} and its name before the flags"
        raise usage(f'"{what[0]}" is neither a flag nor a manifest', hint=hint)
    if not filenames:
        raise usage("must specify a file with -f", hint="name them with -f FILE; -f - reads stdin")
    manifests = in_order(read(filenames, recursive=recursive, validate=validate))
    how = CreateOptions(dry_run, output)

    async def create_them(session: Session) -> None:
        place_all(manifests, session)
        wanted = [NewObject((manifest.resource, manifest.obj), where(manifest)) for manifest in manifests]
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
    create_one(settings, lambda _: new_namespace(name), CreateOptions(dry_run, output))


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
@click.option(
    "--image", "images", required=True, multiple=True, metavar="IMAGE", help="The image of a container. May be repeated."
)
@click.option(
    "-r",
    "--replicas",
    type=click.IntRange(0, arguments.MOST_REPLICAS),
    default=1,
    show_default=True,
    help="Number of replicas.",
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
    how = CreateOptions(dry_run, output)
    create_one(settings, lambda space: new_deployment(name, space, images, replicas, command), how)


@verb("job", examples="pinnace create job pi --image perl -- perl -Mbignum=bpi -wle 'print bpi(2000)'")
@click.argument("name")
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARGUMENT...]]")
@click.option("--image", required=True, metavar="IMAGE", help="The image of the container.")
@how_options
def job(settings: Settings, name: str, command: tuple[str, ...], image: str, dry_run: str, output: str | None) -> None:
    """Create a job of one pod.

    A simulated container ignores the command and does not end, unless its pod has the annotation pinnace.io/run-seconds, or
    the cluster was started with `--stages fast` or `--stages realistic` (docs/kubelet.md). With --runtime process, the
    container runs the command.
    """
    create_one(settings, lambda space: new_job(name, space, image, command), CreateOptions(dry_run, output))


def data_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--from-literal` and `--from-file` to a verb."""
    literal = click.option("--from-literal", "literals", multiple=True, metavar="KEY=VALUE", help="A value. May be repeated.")
    from_file = click.option(
        "--from-file", "files", multiple=True, metavar="[KEY=]FILE", help="A file, or all files of a folder. May be repeated."
    )
    return literal(from_file(function))


@verb(
    "configmap",
    examples="""
        pinnace create configmap settings --from-literal level=info --from-literal color=blue
        pinnace create configmap settings --from-file app.conf --from-file logo=images/logo.png
    """,
)
@click.argument("name")
@data_options
@how_options
def configmap(
    settings: Settings, name: str, literals: tuple[str, ...], files: tuple[str, ...], dry_run: str, output: str | None
) -> None:
    """Create a config map from files or literal values."""
    data = data_of(literals, files)
    create_one(settings, lambda space: new_config_map(name, space, data), CreateOptions(dry_run, output))


@click.group("secret")
def secret() -> None:
    """Create a secret."""


@verb(
    "generic",
    examples="""
        pinnace create secret generic login --from-literal username=admin --from-file password
        pinnace create secret generic cert --type kubernetes.io/tls --from-file tls.crt --from-file tls.key
    """,
)
@click.argument("name")
@click.option("--type", "type_", default="", metavar="TYPE", help="The type of the secret. Default: Opaque.")
@data_options
@how_options
def generic(
    settings: Settings,
    name: str,
    type_: str,
    literals: tuple[str, ...],
    files: tuple[str, ...],
    dry_run: str,
    output: str | None,
) -> None:
    """Create a secret from files or literal values."""
    data = data_of(literals, files)
    create_one(settings, lambda space: new_secret(name, space, type_, data), CreateOptions(dry_run, output))


secret.add_command(generic)


@verb("serviceaccount", examples="pinnace create serviceaccount builder")
@click.argument("name")
@how_options
def serviceaccount(settings: Settings, name: str, dry_run: str, output: str | None) -> None:
    """Create a service account."""
    create_one(settings, lambda space: new_service_account(name, space), CreateOptions(dry_run, output))


for each in (file, namespace, deployment, job, configmap, secret, serviceaccount):
    create.add_command(each)


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
@click.option(
    "--command",
    "is_command",
    is_flag=True,
    help="Use the arguments as the command, rather than as arguments of the image's command.",
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="An environment variable. May be repeated.")
@click.option("-l", "--labels", default="", metavar="LABEL=VALUE[,...]", help="Labels of the pod, instead of run=NAME.")
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="A port that the container exposes.")
@click.option("--restart", type=click.Choice(["Always", "OnFailure", "Never"]), default="Always", help="The restart policy.")
@how_options
def run_pod(
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
    """Run a particular image in a pod."""
    if is_command and not arguments:
        raise usage("--command: no command is given", hint="write it behind --: pinnace run NAME --image IMAGE --command -- ls")
    given = pairs_of("--labels", labels.split(",")) if labels else None
    variables = list(pairs_of("--env", env).items())
    create_one(
        settings,
        lambda namespace: new_pod(
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
        CreateOptions(dry_run, output),
    )


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
    "--port", type=click.IntRange(1, 65535), default=None, help="The port of the service. Default: the ports of the containers."
)
@click.option("--target-port", default="", metavar="PORT|NAME", help="The port of the pods, if it differs from --port.")
@click.option("--protocol", type=click.Choice(["TCP", "UDP", "SCTP"]), default="TCP", show_default=True)
@click.option("--name", default="", help="The name of the service. Default: the name of the object.")
@click.option("--type", "type_", type=click.Choice(TYPES), default=TYPES[0], show_default=True)
@click.option(
    "--selector",
    default="",
    metavar="LABEL=VALUE[,...]",
    help="The selector of the service. Default: the selector or labels of the object.",
)
@click.option(
    "-l", "--labels", default="", metavar="LABEL=VALUE[,...]", help="Labels of the service. Default: the labels of the object."
)
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
    """Expose a pod, deployment, replica set or service as a new service.

    The service gets EndpointSlices. A service proxy forwards connections to the pods.
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
        made: Item = new_service(name or target.names[0], session.namespace, chosen, ports, type_, given)
        await create_all(session, [NewObject(made)], CreateOptions(dry_run, output))

    run(settings, create)


def _selector(found: Any) -> dict[str, str]:
    """Return the labels that select the pods of an object. Services do not support expressions."""
    if found.DESCRIPTOR.full_name == PODS.message.DESCRIPTOR.full_name:
        return dict(found.metadata.labels)
    if found.DESCRIPTOR.full_name == SERVICES.message.DESCRIPTOR.full_name:
        return dict(found.spec.selector)
    return {} if found.spec.selector.matchExpressions else dict(found.spec.selector.matchLabels)


def _ports(found: Any) -> list[tuple[int, str]]:
    """Return the pairs (port, protocol) of the containers, or of the service."""
    if found.DESCRIPTOR.full_name == SERVICES.message.DESCRIPTOR.full_name:
        return [(each.port, each.protocol or "TCP") for each in found.spec.ports]
    spec: PodSpec = found.spec if found.DESCRIPTOR.full_name == PODS.message.DESCRIPTOR.full_name else found.spec.template.spec
    return [(port.containerPort, port.protocol or "TCP") for container in spec.containers for port in container.ports]
