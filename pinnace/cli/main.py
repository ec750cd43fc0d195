"""`pinnace`: finds the verb, runs it, and turns however it ends into an exit code."""

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from pinnace.cli import terminal
from pinnace.cli.command import LazyGroup
from pinnace.cli.errors import guarded
from pinnace.cli.settings import Settings, completing
from pinnace.cli.unsupported import UNSUPPORTED
from pinnace.runtime import interrupts

SECTIONS = {
    "A local cluster": {
        "up": "Start a local cluster, or go on with the one that is there.",
        "status": "Show the processes of a local cluster.",
        "stop": "Stop a local cluster, and keep all its data.",
        "start": "Start the processes of a local cluster that do not run.",
        "kill": "Kill processes of a local cluster, or send them another signal.",
        "restart": "Restart processes of a local cluster, and renew its certificates.",
        "down": "Stop a local cluster, and remove it with all its objects.",
        "doctor": "Find what is wrong with a cluster or this client.",
        "demo": "Stories that a real cluster tells.",
        "bench": "Measure pinnace on this machine.",
        "chaos": "Break a cluster on purpose, and judge what became of it.",
        "check": "Judge the history of a run.",
    },
    "Objects": {
        "get": "Show objects in a table, or as YAML or JSON.",
        "describe": "Show everything about objects, with their events.",
        "why": "Explain why a pod is on its node, or why it is pending.",
        "apply": "Create or change objects to match manifests.",
        "run": "Create a pod of one container from an image.",
        "expose": "Create a service for a pod, deployment, replica set or service.",
        "create": "Create objects from manifests, or simple ones without.",
        "diff": "Show what `apply` would change.",
        "set": "Set single fields of objects.",
        "edit": "Change objects in an editor.",
        "patch": "Change fields of objects.",
        "delete": "Delete objects.",
        "scale": "Set how many pods a deployment or a replica set is to have.",
        "rollout": "Follow, undo, pause or restart rollouts of deployments.",
        "label": "Set or remove labels.",
        "annotate": "Set or remove annotations.",
        "wait": "Wait until objects are as wanted.",
        "events": "Show what happened, oldest first.",
        "logs": "Show what containers write, or the log of a component.",
        "exec": "Run a command in a container.",
        "top": "Show what nodes or pods use of CPU and memory.",
        "api-resources": "Show the kinds of objects.",
        "explain": "Show what fields an object has, and what they mean.",
    },
    "Nodes and leaders": {
        "cordon": "Keep new pods off nodes.",
        "uncordon": "Let new pods onto nodes again.",
        "drain": "Empty nodes, to take them away or to restart them.",
        "taint": "Set or remove taints of nodes.",
        "node": "Add virtual nodes to a fleet, list nodes, or make them fail.",
        "pod": "Make pods crash.",
        "leader": "Show who leads an election.",
        "sched": "Show the leading scheduler's queue, or its cache.",
    },
    "Other": {
        "config": "Show and change contexts: which cluster commands talk to.",
        "auth": "Ask the server who you are, and what you may do.",
        "pki": "Make the certificates of a cluster.",
        "version": "Show the version of this program and of the server.",
        "completion": "Print a script that completes commands and names in a shell.",
    },
}

MODULES = {
    "api-resources": "explain",
    "annotate": "label",
    "completion": "version",
    "cordon": "drain",
    "diff": "apply",
    "down": "processes",
    "events": "get",
    "exec": "logs",
    "expose": "create",
    "kill": "processes",
    "patch": "edit",
    "pod": "node",
    "restart": "processes",
    "run": "create",
    "scale": "rollout",
    "set": "label",
    "start": "processes",
    "status": "processes",
    "stop": "processes",
    "taint": "label",
    "uncordon": "drain",
}
"""The modules of the verbs that share one with a verb of another name."""

HELP = """A small, real cluster control plane: the verbs that kubectl taught everyone, and a few that nobody else has.

Flags may stand before or after the verb. Every verb explains itself: pinnace VERB --help."""

cli = LazyGroup("pinnace", package="pinnace.cli.verbs", sections=SECTIONS, modules=MODULES, unsupported=UNSUPPORTED, help=HELP)


def _print_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from pinnace.cli.verbs.version import own_version, text

        click.echo(text({"client": own_version()}))
        ctx.exit()


cli.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="The same as `version --client`.",
    )
)


def _namespaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from pinnace.api.resources import NAMESPACES
    from pinnace.cli.objects.arguments import names_of

    return names_of(NAMESPACES)(ctx, param, incomplete)


completing["namespace"] = _namespaces


def run(arguments: Sequence[str]) -> int:
    """Runs one command line (without the program's name). Returns the exit code."""
    settings = Settings(no_color=bool(os.environ.get("NO_COLOR")))
    words = list(arguments) or ["--help"]
    return guarded(lambda: cli.main(words, prog_name="pinnace", standalone_mode=False, obj=settings), settings)


def main() -> NoReturn:
    terminal.prepare()
    try:
        code = run(sys.argv[1:])
        interrupts.end_as(code)
    except KeyboardInterrupt:
        code = interrupts.INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
