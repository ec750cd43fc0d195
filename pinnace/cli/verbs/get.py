"""`pinnace get`: objects in tables, or as machines read them; once, or for as long as they change."""

import click

from pinnace.cli import options
from pinnace.cli.command import verb
from pinnace.cli.outcomes import usage
from pinnace.cli.printers.columns import View
from pinnace.cli.query import Query
from pinnace.cli.session import run
from pinnace.cli.settings import Settings
from pinnace.cli.showing import Style, follow, show


@verb(
    "get",
    examples="""
        pinnace get pods                            # of the namespace default
        pinnace get pods -A -o wide                 # of all namespaces, with their nodes
        pinnace get pod a -o yaml                   # one object, all of it
        pinnace get pods,nodes                      # several kinds
        pinnace get pods -l app=web -w              # what there is, then every change
        pinnace get pods --field-selector spec.nodeName=node-0 -o name
    """,
)
@options.what
@options.all_namespaces
@options.selector
@options.field_selector
@click.option("-o", "--output", type=click.Choice(["wide", "yaml", "json", "name"]), help="How to show the objects.")
@click.option("-w", "--watch", is_flag=True, help="Then show every change, until interrupted or --timeout.")
@click.option("--show-labels", is_flag=True, help="A column with the labels.")
@click.option("--no-headers", is_flag=True, help="No line of column names.")
def get(
    settings: Settings,
    what: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    output: str | None,
    watch: bool,
    show_labels: bool,
    no_headers: bool,
) -> None:
    """Show objects in a table, or as YAML or JSON.

    Kinds: pods, nodes, namespaces, events, priorityclasses, leases, persistentvolumes, persistentvolumeclaims, storageclasses,
    csinodes, services, poddisruptionbudgets, resourcequotas, limitranges, roles, clusterroles, rolebindings,
    clusterrolebindings. Singular and short names (po, no, ns, ev, pc, pv, pvc, sc, svc, pdb, quota, limits) do too.
    """
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector, fields=field_selector)
    view = View(wide=output == "wide", labels=show_labels)
    style = Style(form=None if output == "wide" else output, view=view, headers=not no_headers)
    if not watch:
        run(settings, lambda session: show(session, query, style))
    elif len(query.targets) > 1:
        raise usage("a watch shows one kind", hint="run one for each kind")
    else:
        run(settings, lambda session: session.watch(follow(session, query, style)))
