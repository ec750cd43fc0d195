"""`pinnace config`: the contexts of the client's configuration, as `kubectl config` shows and changes them."""

from pathlib import Path

import click

from pinnace.api.names import dns_label
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.local.contexts import editing
from pinnace.cli.outcomes import ExitCode, usage
from pinnace.cli.output import contexts as shown
from pinnace.cli.settings import Settings, complete_context
from pinnace.cli.terminal.console import note, out
from pinnace.cli.terminal.table import Table
from pinnace.client import contexts
from pinnace.client.config import Document, config_path, entry, read

_context = click.argument("name", metavar="CONTEXT", shell_complete=complete_context)


@click.group("config", cls=VerbGroup)
def config() -> None:
    """Show and change contexts: which cluster commands talk to.

    A context is a cluster, a user and a namespace, under a name. They are kept in a file in the kubeconfig format:
    $PINNACE_CONFIG, or ~/.config/pinnace/config.
    """


@verb(
    "get-contexts",
    examples="""
        pinnace config get-contexts
        pinnace config get-contexts -o name
    """,
)
@click.argument("name", metavar="[CONTEXT]", default="", shell_complete=complete_context)
@click.option("-o", "--output", type=click.Choice(["name"]), help="Only the names.")
@click.option("--no-headers", is_flag=True, help="No line of column names.")
def get_contexts(settings: Settings, name: str, output: str | None, no_headers: bool) -> None:
    """Show the contexts that there are, the current one with a star."""
    path, document = _read()
    if name:
        with editing(ExitCode.USAGE):
            entry(document, "context", name, path)
    rows = [row for row in shown.rows(document) if name in ("", row[1])]
    if output == "name":
        out("".join(f"{row[1]}\n" for row in rows))
    else:
        out(Table(shown.HEADERS, show_headers=not no_headers).render(rows))


@verb("current-context", examples="pinnace config current-context")
def current_context(settings: Settings) -> None:
    """Show the name of the context that commands use. When there is none the exit code is 3."""
    path, document = _read()
    with editing(ExitCode.NOT_FOUND):
        out(f"{contexts.current(document, path)}\n")


@verb(
    "use-context",
    examples="""
        pinnace config use-context local        # in all terminals that share the file
        pinnace --context local get pods        # for one command
    """,
)
@_context
def use_context(settings: Settings, name: str) -> None:
    """Make it the context that commands use."""
    with editing(ExitCode.USAGE):
        contexts.use_context(name)
    out(f'Switched to context "{name}".\n')


@verb(
    "view",
    examples="""
        pinnace config view
        pinnace config view --minify -o json | jq -r '.contexts[0].context.namespace'
    """,
)
@click.option("--minify", is_flag=True, help="Only what the current context needs, or that of --context.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="In which form.")
def view(settings: Settings, minify: bool, output: str) -> None:
    """Show the configuration, without keys, tokens and passwords."""
    path, document = _read()
    if minify:
        with editing(ExitCode.USAGE):
            document = contexts.minified(document, settings.context or contexts.current(document, path), path)
    from pinnace.cli.output import documents

    out(documents.dump(output, shown.redacted(document)))


@verb(
    "set-context",
    examples="""
        pinnace config set-context --current --namespace team-a
        pinnace config set-context mine --cluster local --user local -n team-a
    """,
)
@click.argument("name", metavar="[CONTEXT]", default="", shell_complete=complete_context)
@click.option("--current", is_flag=True, help="The current one.")
@click.option("--cluster", metavar="NAME", help="A cluster of the configuration.")
@click.option("--user", metavar="NAME", help="A user of the configuration.")
@click.option("-n", "--namespace", metavar="NAME", help="The namespace to work in unless a command says otherwise.")
def set_context(
    settings: Settings, name: str, current: bool, cluster: str | None, user: str | None, namespace: str | None
) -> None:
    """Change the cluster, the user or the namespace of a context, or add one. What is not said stays."""
    if bool(name) == current:
        raise usage("which context?", hint="name one, or say --current")
    namespace = namespace or settings.namespace
    if namespace and (problems := dns_label(namespace)):
        raise usage(f'"{namespace}" cannot be a namespace: {problems[0]}')
    said = {"cluster": cluster, "user": user, "namespace": namespace}
    changes = {key: value for key, value in said.items() if value}
    if not changes:
        raise usage("what is to change?", hint="--namespace, --cluster or --user")
    with editing(ExitCode.USAGE):
        if current:
            name = contexts.current(read(config_path()), config_path())
        is_new = contexts.set_context(name, changes)
    out(f'Context "{name}" {"created" if is_new else "modified"}.\n')


@verb("rename-context", examples="pinnace config rename-context local home")
@_context
@click.argument("new", metavar="NEW_NAME")
def rename_context(settings: Settings, name: str, new: str) -> None:
    """Give a context another name. `pinnace down` finds it all the same."""
    if not new:
        raise usage("a context needs a name")
    with editing(ExitCode.USAGE):
        contexts.rename_context(name, new)
    out(f'Context "{name}" renamed to "{new}".\n')


@verb("delete-context", examples="pinnace config delete-context far")
@_context
def delete_context(settings: Settings, name: str) -> None:
    """Remove a context from the configuration; its cluster and its user stay there. Nothing is stopped."""
    with editing(ExitCode.USAGE):
        was_current = contexts.delete_context(name)
    out(f"deleted context {name} from {config_path()}\n")
    if was_current:
        note("it was the current context: choose another with `pinnace config use-context`")


for each in (get_contexts, current_context, use_context, view, set_context, rename_context, delete_context):
    config.add_command(each)


def _read() -> tuple[Path, Document]:
    """The file, and what is in it. Raises Failure."""
    with editing(ExitCode.NOT_FOUND):
        return config_path(), read(config_path())
