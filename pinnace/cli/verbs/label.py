"""The verbs `label`, `annotate`, `taint` and `set`: change labels, annotations, taints, and single fields such as images."""

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import click

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.resources import DEPLOYMENTS, JOBS, NODES, PODS, REPLICA_SETS, Object, names
from pinnace.cli.changes import ANNOTATIONS, LABELS, PairEdits, Pairs, TaintEdits, change_each, pairs_of
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.arguments import complete_target, targets_of
from pinnace.cli.objects.query import Query
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import run
from pinnace.cli.settings import Settings

_ARGUMENTS = (
    click.argument(
        "words", nargs=-1, metavar="KIND NAME... | KIND/NAME...  KEY=VALUE... KEY-...", shell_complete=complete_target
    ),
    arguments.all_namespaces,
    arguments.selector,
    click.option("--all", "every", is_flag=True, help="Select all resources of the kind in the namespace."),
    click.option("--overwrite", is_flag=True, help="Allow existing values to be overwritten."),
)


def edit_arguments(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of `edit` to a command."""
    for argument in reversed(_ARGUMENTS):
        command = argument(command)
    return command


def edit_pairs(
    settings: Settings,
    pairs: Pairs,
    of: Callable[[Object], MutableMapping[str, str]],
    *,
    words: Sequence[str],
    all_namespaces: bool,
    selector: str,
    every: bool,
    overwrite: bool,
) -> None:
    """`of`: returns the labels or annotations of an object. Raises Failure."""
    split = next((i for i, word in enumerate(words) if i and ("=" in word or word.endswith("-"))), len(words))
    query = Query.of(words[:split], all_namespaces=all_namespaces, labels=selector, every=every)
    edits = PairEdits.parse(words[split:], pairs)
    if not edits.set and not edits.remove:
        raise usage(f"which {pairs.one}?", hint="KEY=VALUE sets one, KEY- removes it")
    if not (every or selector or all(target.names for target in query.targets)):
        raise usage("you must specify resources", hint="name them, select them with -l, or say --all")
    run(settings, lambda session: change_each(session, query, lambda obj: edits.apply(of(obj), overwrite=overwrite)))


@verb(
    "label",
    examples="""
        pinnace label pod a app=web tier=front      # set
        pinnace label node/node-0 zone-             # remove
        pinnace label pods --all app=web --overwrite
        pinnace label pods -l app=web tier=back
    """,
)
@edit_arguments
def label(settings: Settings, **chosen: Any) -> None:
    """Add, change or remove labels of resources."""
    edit_pairs(settings, LABELS, lambda obj: obj.metadata.labels, **chosen)


@verb(
    "annotate",
    examples="""
        pinnace annotate deployment/web kubernetes.io/change-cause='a new image' --overwrite
        pinnace annotate pod a pinnace.io/memory-usage=6Gi     # set
        pinnace annotate pods -l app=web note-                 # remove
    """,
)
@edit_arguments
def annotate(settings: Settings, **chosen: Any) -> None:
    """Add, change or remove annotations of resources."""
    edit_pairs(settings, ANNOTATIONS, lambda obj: obj.metadata.annotations, **chosen)


@verb(
    "taint",
    examples="""
        pinnace taint node node-0 gpu=true:NoSchedule      # repels pods that do not tolerate it
        pinnace taint node node-0 node-1 gpu:NoExecute     # also evicts running pods
        pinnace taint node node-0 gpu:NoSchedule-          # remove it
        pinnace taint nodes -l zone=a gpu-                 # remove it with any effect
    """,
)
@click.argument(
    "words", nargs=-1, metavar="[node] NODE... KEY[=VALUE]:EFFECT... KEY[:EFFECT]-...", shell_complete=targets_of(NODES)
)
@arguments.selector
@click.option("--all", "every", is_flag=True, help="Select all nodes.")
@click.option("--overwrite", is_flag=True, help="Replace the values of existing taints.")
def taint(settings: Settings, words: tuple[str, ...], selector: str, every: bool, overwrite: bool) -> None:
    """Add, change or remove taints of nodes.

    Effects: NoSchedule, PreferNoSchedule, NoExecute.
    """
    rest = words[1:] if words and words[0].lower() in names(NODES) else words
    split = next((i for i, word in enumerate(rest) if ":" in word or "=" in word or word.endswith("-")), len(rest))
    nodes = [word.removeprefix("node/") for word in rest[:split]]
    edits = TaintEdits.parse(rest[split:])
    if not edits.set and not edits.remove:
        raise usage("which taint?", hint="KEY=VALUE:EFFECT sets one, KEY:EFFECT- removes it")
    if not (nodes or selector or every):
        raise usage("you must specify a node", hint="name nodes, select them with -l, or say --all")
    query = Query.of([NODES.plural, *nodes], labels=selector, every=every)

    def change(node: Node) -> str:
        return edits.apply(node, overwrite=overwrite)

    run(settings, lambda session: change_each(session, query, change))


WITH_IMAGES = (PODS, DEPLOYMENTS, REPLICA_SETS, JOBS)
ALL = "*"


@click.group("set", cls=VerbGroup)
def set_verb() -> None:
    """Set specific fields of objects."""


@verb(
    "image",
    examples="""
        pinnace set image deployment/web nginx=nginx:1.28
        pinnace set image deployments -l app=web '*=nginx:1.28'     # all containers
    """,
)
@arguments.what
@arguments.selector
def image(settings: Settings, what: tuple[str, ...], selector: str) -> None:
    """Set the images of containers: CONTAINER=IMAGE, where * is all of them."""
    images = pairs_of("the images", [word for word in what if "=" in word])
    query = Query.of([word for word in what if "=" not in word], labels=selector)
    if not images:
        raise usage("which image?", hint="say CONTAINER=IMAGE, such as nginx=nginx:1.28")
    if not selector and not all(target.names for target in query.targets):
        raise usage("you must specify resources", hint="name them, such as deployment/web, or select them with -l")
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


set_verb.add_command(image)
