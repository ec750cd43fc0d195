"""`pinnace explain`: what fields an object has, and what they mean."""

import click
from click.shell_completion import CompletionItem

from pinnace.cli.command import verb
from pinnace.cli.outcomes import usage
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import out


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from pinnace.cli.explain import places

    return [CompletionItem(path) for path in places.completions(incomplete)]


@verb(
    "explain",
    examples="""
        pinnace explain pod
        pinnace explain pod.spec.containers
        pinnace explain deployment.spec.strategy --recursive
        pinnace explain pod.spec.containers[0].resources      # the path as an error has it
    """,
)
@click.argument("path", metavar="KIND[.FIELD...]", default="", shell_complete=_complete)
@click.option("--recursive", is_flag=True, help="Also the fields of fields, without what they mean.")
def explain(settings: Settings, path: str, recursive: bool) -> None:
    """Show what fields an object has, and what they mean.

    It says what a field does in this system, which may be less than in Kubernetes. No server is asked.
    """
    if not path:
        raise usage("which kind?", hint="name one, such as `pod` or `pod.spec`; `pinnace api-resources` lists them")
    from pinnace.cli.explain import places, text

    resource, steps = places.split(path)
    place = places.find(resource, steps)
    out(text.text(resource, steps[-1] if steps else "", place, recursive=recursive))
