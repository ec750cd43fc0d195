"""`pinnace config`: shows and changes the contexts of the client configuration. Secrets are not printed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pinnace.api.names import dns_label
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.local.clusters import data_dir_option, editing
from pinnace.cli.local.running import translated
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.settings import Settings, complete_context
from pinnace.cli.terminal import Table, note, out
from pinnace.client import config as client_config
from pinnace.client.config import CURRENT, Document, config_path, entries, entry, read

_context = click.argument("name", metavar="CONTEXT", shell_complete=complete_context)


@click.group("config", cls=VerbGroup)
def config() -> None:
    """Show and change the contexts of the configuration file.

    A context combines a cluster, a user and a namespace under a name. The file has the kubeconfig format. Its path is
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
@click.option("-o", "--output", type=click.Choice(["name"]), help="Print only the names.")
@click.option("--no-headers", is_flag=True, help="Do not print headers.")
def get_contexts(settings: Settings, name: str, output: str | None, no_headers: bool) -> None:
    """Display the contexts of the configuration file. A star marks the current one."""
    path, document = _read()
    if name:
        with editing(ExitCode.USAGE):
            entry(document, "context", name, path)
    shown = [row for row in rows(document) if name in ("", row[1])]
    if output == "name":
        out("".join(f"{row[1]}\n" for row in shown))
    else:
        out(Table(HEADERS, show_headers=not no_headers).render(shown))


@verb("current-context", examples="pinnace config current-context")
def current_context(settings: Settings) -> None:
    """Display the current context. The exit code is 3 if there is none."""
    path, document = _read()
    with editing(ExitCode.NOT_FOUND):
        out(f"{client_config.current(document, path)}\n")


@verb(
    "use-context",
    examples="""
        pinnace config use-context local        # in all terminals that share the file
        pinnace --context local get pods        # for one command
    """,
)
@_context
def use_context(settings: Settings, name: str) -> None:
    """Set the current context in the configuration file."""
    with editing(ExitCode.USAGE):
        client_config.use_context(name)
    out(f'Switched to context "{name}".\n')


@verb(
    "view",
    examples="""
        pinnace config view
        pinnace config view --minify -o json | jq -r '.contexts[0].context.namespace'
    """,
)
@click.option("--minify", is_flag=True, help="Remove all entries that the current context (or --context) does not use.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="The output format."
)
def view(settings: Settings, minify: bool, output: str) -> None:
    """Display the configuration, with keys, tokens and passwords redacted."""
    path, document = _read()
    if minify:
        with editing(ExitCode.USAGE):
            document = client_config.minified(document, settings.context or client_config.current(document, path), path)
    from pinnace.cli.output import documents

    out(documents.dump(output, redacted(document)))


@verb(
    "kubeconfig",
    examples="""
        pinnace config kubeconfig > kubeconfig && export KUBECONFIG=$PWD/kubeconfig
        kubectl get nodes
    """,
)
@data_dir_option
def kubeconfig(settings: Settings, data_dir: Path | None) -> None:
    """Print a configuration with which kubectl reaches a local cluster through its gateway."""
    from pinnace.cli.output import documents
    from pinnace.cluster import certificates
    from pinnace.cluster.cluster import Cluster
    from pinnace.cluster.spec import GATEWAY, data_dir_flag, default_data_dir, pki_folder

    with translated():
        cluster = Cluster.load(data_dir or default_data_dir())
        folder = cluster.spec.data_dir
        gateways = cluster.state.of(GATEWAY)
        if not gateways:
            hint = f"`pinnace up{data_dir_flag(folder)} --fresh --gateways 1` makes a cluster with one"
            raise Failure(f"the cluster in {folder} has no gateway", hint=hint, code=ExitCode.NOT_FOUND)
        out(documents.dump("yaml", certificates.kubeconfig(pki_folder(folder), gateways[0].plan.address)))


@verb(
    "set-context",
    examples="""
        pinnace config set-context --current --namespace team-a
        pinnace config set-context mine --cluster local --user local -n team-a
    """,
)
@click.argument("name", metavar="[CONTEXT]", default="", shell_complete=complete_context)
@click.option("--current", is_flag=True, help="Modify the current context.")
@click.option("--cluster", metavar="NAME", help="A cluster of the configuration.")
@click.option("--user", metavar="NAME", help="A user of the configuration.")
@click.option("-n", "--namespace", metavar="NAME", help="The default namespace of the context.")
def set_context(
    settings: Settings, name: str, current: bool, cluster: str | None, user: str | None, namespace: str | None
) -> None:
    """Set a context entry in the configuration file. Fields that are not given stay unchanged."""
    if bool(name) == current:
        raise usage("you must specify a context", hint="name one, or say --current")
    namespace = namespace or settings.namespace
    if namespace and (problems := dns_label(namespace)):
        raise usage(f'"{namespace}" cannot be a namespace: {problems[0]}')
    said = {"cluster": cluster, "user": user, "namespace": namespace}
    changes = {key: value for key, value in said.items() if value}
    if not changes:
        raise usage("nothing to change", hint="--namespace, --cluster or --user")
    with editing(ExitCode.USAGE):
        if current:
            name = client_config.current(read(config_path()), config_path())
        is_new = client_config.set_context(name, changes)
    out(f'Context "{name}" {"created" if is_new else "modified"}.\n')


@verb("rename-context", examples="pinnace config rename-context local home")
@_context
@click.argument("new", metavar="NEW_NAME")
def rename_context(settings: Settings, name: str, new: str) -> None:
    """Rename a context in the configuration file. `pinnace down` still finds it."""
    if not new:
        raise usage("a context needs a name")
    with editing(ExitCode.USAGE):
        client_config.rename_context(name, new)
    out(f'Context "{name}" renamed to "{new}".\n')


@verb("delete-context", examples="pinnace config delete-context far")
@_context
def delete_context(settings: Settings, name: str) -> None:
    """Delete a context from the configuration file. Its cluster entry and user entry stay. No process is stopped."""
    with editing(ExitCode.USAGE):
        was_current = client_config.delete_context(name)
    out(f"deleted context {name} from {config_path()}\n")
    if was_current:
        note("it was the current context: choose another with `pinnace config use-context`")


for each in (get_contexts, current_context, use_context, view, set_context, rename_context, delete_context, kubeconfig):
    config.add_command(each)


def _read() -> tuple[Path, Document]:
    """The path and the content of the file. Raises Failure."""
    with editing(ExitCode.NOT_FOUND):
        return config_path(), read(config_path())


HEADERS = ("CURRENT", "NAME", "CLUSTER", "SERVERS", "USER", "NAMESPACE")
_OMITTED, _REDACTED = "DATA+OMITTED", "REDACTED"
"""kubectl's wording."""
_SECRET = ("token", "password", "secret")
_FILE = ("file", "path")
"""Suffixes of names whose value is the location of a secret."""


def rows(document: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
    """One row per context, in alphabetical order."""
    servers = {each.get("name"): _text(each, "cluster", "server") for each in entries(document, "cluster")}
    current = document.get(CURRENT)
    found = []
    for each in entries(document, "context"):
        name, cluster = str(each.get("name")), _text(each, "context", "cluster")
        user, namespace = _text(each, "context", "user"), _text(each, "context", "namespace")
        found.append(("*" if name == current else "", name, cluster, servers.get(cluster, ""), user, namespace))
    return sorted(found, key=lambda row: row[1])


def redacted(value: Any) -> Any:
    """The configuration without keys, tokens and passwords."""
    if isinstance(value, list):
        return [redacted(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {"name", "value"}:  # environment variables of a credential plugin
        return {**value, "value": _REDACTED}
    return {key: _hidden(str(key), each) for key, each in value.items()}


def _hidden(key: str, value: Any) -> Any:
    name = key.lower()
    if isinstance(value, Mapping | list) or not value:
        return redacted(value)
    if name.endswith("-data"):
        return _OMITTED
    return _REDACTED if any(word in name for word in _SECRET) and not name.endswith(_FILE) else value


def _text(entry: Mapping[str, Any], kind: str, key: str) -> str:
    value = entry.get(kind)
    return str(value.get(key) or "") if isinstance(value, Mapping) else ""
