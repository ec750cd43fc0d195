"""Options that all components have."""

import click

logging_format = click.option(
    "--logging-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How lines of the log are written: for people, or for programs.",
)
