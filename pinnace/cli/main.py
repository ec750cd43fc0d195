"""The main function of `pinnace`: runs a verb and returns the exit code."""

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
        "up": "Start a local cluster, or resume an existing one.",
        "status": "Show the processes of a local cluster.",
        "stop": "Stop a local cluster and keep its data.",
        "start": "Start the stopped processes of a local cluster.",
        "kill": "Kill processes of a local cluster, or send another signal.",
        "restart": "Restart processes of a local cluster, and renew its certificates.",
        "down": "Stop a local cluster and delete it with all its objects.",
        "doctor": "Diagnose a cluster and this client.",
        "ui": "Open the timeline of a cluster in a browser.",
        "timeline": "Record a timeline, or open recordings.",
        "demo": "Demonstrate failover on a real cluster.",
        "lab": "List and start labs, and check their steps.",
        "bench": "Measure pinnace on this machine.",
        "chaos": "Inject faults into a cluster and check the history.",
        "check": "Check the recorded history of a run.",
    },
    "Objects": {
        "get": "Display one or many resources as a table, YAML or JSON.",
        "describe": "Show details of resources, with their events.",
        "why": "Explain why a pod is on its node, or why it is pending.",
        "trace": "Show the steps of a pod from its creation to its current status.",
        "apply": "Apply a configuration to resources by file name or stdin.",
        "run": "Run a particular image in a pod.",
        "expose": "Expose a pod, deployment, replica set or service as a new service.",
        "create": "Create resources from files, stdin or flags.",
        "diff": "Show the difference between live and would-be applied versions.",
        "set": "Set specific fields of objects.",
        "edit": "Edit resources in an editor.",
        "patch": "Update fields of resources.",
        "delete": "Delete resources by file name, name, or selector.",
        "scale": "Set a new size for a deployment or replica set.",
        "rollout": "Manage the rollout of deployments.",
        "label": "Add, change or remove labels of resources.",
        "annotate": "Add, change or remove annotations of resources.",
        "wait": "Wait for a specific condition on one or many resources.",
        "events": "List events, oldest first.",
        "logs": "Print the logs of containers, or the log of a component.",
        "exec": "Execute a command in a container.",
        "top": "Show the CPU and memory usage of nodes or pods.",
        "api-resources": "List the supported API resources.",
        "explain": "Show documentation for a resource and its fields.",
    },
    "Nodes and leaders": {
        "cordon": "Mark nodes as unschedulable.",
        "uncordon": "Mark nodes as schedulable.",
        "drain": "Drain nodes in preparation for maintenance.",
        "taint": "Add, change or remove taints of nodes.",
        "node": "Add virtual nodes, list nodes, or inject node failures.",
        "pod": "Make pods crash.",
        "leader": "Show the leader of an election.",
        "etcd": "Show the keys of etcd, with decoded values.",
        "sched": "Show the queue or the cache of the leading scheduler.",
    },
    "Other": {
        "auth": "Inspect your identity and authorization.",
        "pki": "Create the certificates of a cluster.",
        "version": "Print the client and server version information.",
        "completion": "Output a shell completion script.",
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
    "timeline": "ui",
    "uncordon": "drain",
}
"""Verbs whose module has the name of another verb."""

HELP = """A cluster control plane with the commands of kubectl, and commands for local clusters and fault injection.

Global flags may precede or follow the verb. Use "pinnace VERB --help" for more information about a verb."""

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
    """Run one command line, without the program name, and return the exit code."""
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
