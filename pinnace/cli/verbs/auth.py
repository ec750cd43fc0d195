"""`pinnace auth`: the identity and permissions of a user."""

import click

from pinnace.api.authorization_pb2 import ResourceAttributes
from pinnace.api.resources import NAMESPACES
from pinnace.api.users import Impersonation
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.objects.arguments import complete_target, one_of
from pinnace.cli.objects.query import parse_resource
from pinnace.cli.outcomes import ExitCode, Reported, usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, out

SHORT = {"elections": "elections.pinnace.io", "schedulers": "schedulers.pinnace.io"}
UNSTORED = {**dict.fromkeys(SHORT.values(), False), "nodes.metrics.k8s.io": False, "pods.metrics.k8s.io": True}
"""Resources of permissions that are not kinds of objects, and whether they are namespaced."""
VERBS = (
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
    "bind", "escalate", "impersonate", "campaign", "transfer", "bypass-fence", "*",
)  # fmt: skip


@click.group("auth", cls=VerbGroup)
def auth() -> None:
    """Inspect your identity and authorization."""


@verb(
    "can-i",
    examples="""
        pinnace auth can-i create pods
        pinnace auth can-i create pods --subresource binding --as system:kube-scheduler
        pinnace auth can-i campaign elections/scheduler
        pinnace auth can-i get /version
        pinnace auth can-i --list -n default
    """,
)
@click.argument("action", metavar="VERB", required=False, shell_complete=one_of(*VERBS))
@click.argument("resource", metavar="KIND[/NAME]", required=False, shell_complete=complete_target)
@click.option("--subresource", default="", help="A subresource, such as status or binding.")
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
@click.option("--as", "user", metavar="USER", default="", help="Username to impersonate for the check.")
@click.option("--as-group", "groups", metavar="GROUP", multiple=True, help="A group that USER is in. May be repeated.")
@click.option("--list", "list_", is_flag=True, help="List all actions that the roles of the caller allow.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; only set the exit code.")
def can_i(
    settings: Settings,
    action: str | None,
    resource: str | None,
    subresource: str,
    all_namespaces: bool,
    user: str,
    groups: tuple[str, ...],
    list_: bool,
    quiet: bool,
) -> None:
    """Check whether an action is allowed.

    Prints "yes" or "no", with the reason. The exit code is 10 when the answer is no.
    """
    if list_:
        if action or user or groups:
            raise usage("--list shows everything that the caller may do", hint="leave out VERB, KIND and --as")
        run(settings, show_rules)
        return
    if not action or not resource:
        raise usage("you must specify a verb and a resource", hint="such as `pinnace auth can-i create pods`, or --list")
    if action not in VERBS:
        raise usage(f'unknown verb "{action}"', hint=f"there are {', '.join(VERBS)}")
    if groups and not user:
        raise usage("--as-group requires --as", hint="name the user with --as")
    wanted, namespaced = attributes(action, resource, subresource)
    all_groups = Impersonation(user, groups).all_groups()

    async def ask(session: Session) -> None:
        if namespaced and not all_namespaces:
            wanted.namespace = session.namespace
        reviews = session.client.authorization
        review = await (reviews.can(user, all_groups, wanted) if user else reviews.can_i(wanted))
        if not quiet:
            answer = "yes" if review.allowed else "no"
            out(f"{answer} - {review.reason}\n" if review.reason else f"{answer}\n")
        if not review.allowed:
            raise Reported(ExitCode.VERDICT)

    run(settings, ask)


def attributes(action: str, resource: str, subresource: str) -> tuple[ResourceAttributes, bool]:
    """The attributes of the action, and whether its resource is namespaced. Raises Failure (usage)."""
    if resource.startswith("/"):
        return ResourceAttributes(verb=action, resource=resource), False
    word, _, name = resource.partition("/")
    if word == "*":
        return ResourceAttributes(verb=action, group="*", resource="*", subresource=subresource, name=name), True
    if (full := SHORT.get(word, word)) in UNSTORED:
        plural, _, group = full.partition(".")
        return ResourceAttributes(verb=action, group=group, resource=plural, name=name), UNSTORED[full]
    found = parse_resource(word)
    wanted = ResourceAttributes(verb=action, group=found.group, resource=found.plural, subresource=subresource, name=name)
    if found is NAMESPACES:
        wanted.namespace = name  # a namespace is in its own namespace
    return wanted, found.namespaced


async def show_rules(session: Session) -> None:
    rules = await session.client.authorization.rules(session.namespace)
    rows = {
        (
            ",".join([*(f"{name}.{group}" if group else name for name in rule.resources for group in rule.apiGroups or ("",))]),
            ",".join(rule.nonResourceURLs),
            ",".join(rule.resourceNames),
            ",".join(rule.verbs),
        )
        for rule in rules
    }
    out(Table(("RESOURCES", "NON-RESOURCE URLS", "NAMES", "VERBS")).render(sorted(rows)))


@verb("whoami", examples="pinnace auth whoami")
def whoami(settings: Settings) -> None:
    """Show the user and the groups that the server authenticates you as."""

    async def ask(session: Session) -> None:
        me = await session.client.authorization.who_am_i()
        rows = [("Username", me.username), ("Groups", ",".join(me.groups))]
        if me.nodes:
            rows.append(("Nodes", ",".join(me.nodes)))
        out(Table(("ATTRIBUTE", "VALUE")).render(rows))

    run(settings, ask)


auth.add_command(can_i)
auth.add_command(whoami)
