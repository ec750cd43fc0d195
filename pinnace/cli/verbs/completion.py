"""`pinnace completion`: click's completion scripts."""

import click
from click.shell_completion import get_completion_class

from pinnace.cli.command import verb
from pinnace.cli.settings import Settings


@verb(
    "completion",
    examples="""
        source <(pinnace completion bash)                                     # this shell only
        pinnace completion zsh > "${fpath[1]}/_pinnace"                       # zsh, for good
        pinnace completion fish > ~/.config/fish/completions/pinnace.fish     # fish, for good
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(settings: Settings, shell: str) -> None:
    """Print a script that completes commands and names in a shell."""
    found = get_completion_class(shell)
    assert found is not None
    program = click.get_current_context().find_root().command
    click.echo(found(program, {}, "pinnace", "_PINNACE_COMPLETE").source())
