"""The verbs `get` and `events`: objects as tables or documents, once or as a watch, and events, oldest first."""

from dataclasses import replace
from functools import partial

import click

from pinnace.api.resources import EVENTS
from pinnace.api.selectors import one_of
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query, parse
from pinnace.cli.outcomes import usage
from pinnace.cli.output.showing import CUSTOM_COLUMNS, DOCUMENTS, JSONPATH, OUTPUTS, Order, Style, format_of, show
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.printers.columns import View


@verb(
    "get",
    examples="""
        pinnace get pods                            # in the namespace default
        pinnace get pods -A -o wide                 # in all namespaces, with their nodes
        pinnace get pod a -o yaml                   # one object, with all fields
        pinnace get pods,nodes                      # several kinds
        pinnace get all                             # pods, services, deployments, replica sets and jobs
        pinnace get nodes -L topology.kubernetes.io/zone
        pinnace get pods,nodes -l app=web -w        # list, then watch for changes
        pinnace get pods --field-selector spec.nodeName=node-0 -o name
        pinnace get pods -o jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'
        pinnace get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName --sort-by .spec.nodeName
        pinnace get pods --at-revision 1234         # the state at that revision
    """,
)
@arguments.what
@arguments.all_namespaces
@arguments.selector
@arguments.field_selector
@arguments.at_revision
@click.option(
    "-o",
    "--output",
    metavar=OUTPUTS,
    shell_complete=arguments.one_of("wide", *DOCUMENTS, f"{JSONPATH}=", f"{CUSTOM_COLUMNS}="),
    help="The output format.",
)
@click.option("--sort-by", default="", metavar="PATH", help="Sort by the field at this JSONPath, such as .status.startTime.")
@click.option("-w", "--watch", is_flag=True, help="After listing, watch for changes until interrupted or --timeout.")
@click.option(
    "-L",
    "--label-columns",
    multiple=True,
    metavar="LABEL[,...]",
    help="Add a column with the value of this label. May be repeated.",
)
@click.option("--show-labels", is_flag=True, help="Show the labels in the last column.")
@click.option("--no-headers", is_flag=True, help="Do not print headers.")
@click.option("--show-managed-fields", is_flag=True, help="Print managedFields in JSON and YAML.")
@click.option("--ignore-not-found", is_flag=True, help="Ignore named objects that do not exist.")
@click.option("--chunk-size", type=int, hidden=True, expose_value=False)  # kubectl's; lists come in pages anyway
@click.option("--server-print", is_flag=True, hidden=True, expose_value=False)  # kubectl's
def get(
    settings: Settings,
    what: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    at_revision: int | None,
    output: str | None,
    sort_by: str,
    watch: bool,
    label_columns: tuple[str, ...],
    show_labels: bool,
    no_headers: bool,
    show_managed_fields: bool,
    ignore_not_found: bool,
) -> None:
    """Display one or many resources as a table, YAML or JSON.

    Templates and paths have the syntax of kubectl: https://kubernetes.io/docs/reference/kubectl/jsonpath/. A missing field
    prints nothing.

    Kinds: pods, nodes, namespaces, events, priorityclasses, leases, persistentvolumes, persistentvolumeclaims, storageclasses,
    csinodes, services, poddisruptionbudgets, resourcequotas, limitranges, roles, clusterroles, rolebindings,
    clusterrolebindings, replicasets, deployments, jobs, endpointslices, configmaps, secrets, serviceaccounts, ipaddresses,
    servicecidrs. Singular and short names (po, no, ns, ev, pc, pv, pvc, sc, svc, pdb, quota, limits, rs, deploy, cm, sa, ip)
    work too.
    """
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector, fields=field_selector)
    query = replace(query, optional=ignore_not_found)
    keys = tuple(key for each in label_columns for key in each.split(",") if key)
    view = View(wide=output == "wide", labels=show_labels, label_columns=keys)
    order = _order(sort_by)
    style = Style(
        format=format_of(output, headers=not no_headers, managed_fields=show_managed_fields),
        view=view,
        headers=not no_headers,
        order=order,
    )
    if watch and order:
        raise usage("--sort-by cannot be used with --watch", hint="leave out --watch or --sort-by")
    if at_revision is not None and watch:
        raise usage("--at-revision cannot be used with --watch", hint="leave out --watch or --at-revision")

    async def show_once(session: Session) -> None:
        session.look_back(at_revision)
        await show(session, query, style)

    if not watch:
        run(settings, show_once)
    else:
        from pinnace.cli.output.following import follow

        run(settings, lambda session: session.watch(follow(session, query, style)))


def _order(path: str) -> Order | None:
    """Raises Failure (usage)."""
    if not path:
        return None
    from pinnace.cli import jsonpath
    from pinnace.cli.output import documents

    return partial(documents.ordered, path=jsonpath.parse_path(path))


TYPES = ("Normal", "Warning")
"""The types of events in Kubernetes."""


@verb(
    "events",
    examples="""
        pinnace events                          # in the namespace default
        pinnace events --for pod/a              # of one object
        pinnace events -A --types Warning -w    # watch warnings in all namespaces
    """,
)
@arguments.all_namespaces
@click.option("--for", "about", metavar="KIND/NAME", help="Show only events of this object.")
@click.option("--types", metavar="TYPE[,...]", default="", help="Show only events of these types: Normal, Warning.")
@click.option("-o", "--output", type=click.Choice(["wide", "yaml", "json", "name"]), help="The output format.")
@click.option("-w", "--watch", is_flag=True, help="After listing, watch for new events until interrupted or --timeout.")
@click.option("--no-headers", is_flag=True, help="Do not print headers.")
def events(
    settings: Settings,
    all_namespaces: bool,
    about: str | None,
    types: str,
    output: str | None,
    watch: bool,
    no_headers: bool,
) -> None:
    """List events, oldest first.

    Events expire one hour after their last occurrence.
    """
    fields = [one_of("type", _types(types))] if types else []
    if about:
        targets = parse([about])
        if len(targets) != 1 or len(targets[0].names) != 1:
            raise usage(f'--for "{about}": expected one object', hint="as in --for pod/a")
        resource, (name,) = targets[0].resource, targets[0].names
        fields += [f"involvedObject.kind={resource.kind}", one_of("involvedObject.name", (name,))]
        all_namespaces = all_namespaces or not resource.namespaced
    query = Query.of([EVENTS.plural], all_namespaces=all_namespaces, fields=",".join(fields))
    style = Style(format_of(output), View(wide=output == "wide"), headers=not no_headers)
    if watch:
        from pinnace.cli.output.following import follow

        run(settings, lambda session: session.watch(follow(session, query, style)))
    else:
        run(settings, lambda session: show(session, query, style))


def _types(text: str) -> list[str]:
    """Return the types, whose case is ignored. Raises Failure (usage)."""
    known = {each.lower(): each for each in TYPES}
    words = [word.strip() for word in text.split(",")]
    if unknown := [word for word in words if word.lower() not in known]:
        raise usage(f'--types: "{unknown[0]}" is not a type of event', hint=f"they are {' and '.join(TYPES)}")
    return [known[word.lower()] for word in words]
