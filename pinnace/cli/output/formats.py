"""What `-o` says, as values: the formats in which objects are shown that are no table of the server's.

What makes a format is imported once it is chosen: most of what is shown is a table.
"""

from collections.abc import Sequence
from typing import Protocol

from pinnace.cli.objects.targets import Item
from pinnace.cli.outcomes import usage

DOCUMENTS = ("yaml", "json", "name")
TEMPLATE = "jsonpath"
COLUMNS = "custom-columns"
OUTPUTS = f"wide|{'|'.join(DOCUMENTS)}|{TEMPLATE}=TEMPLATE|{COLUMNS}=NAME:PATH,..."


class Format(Protocol):
    def one(self, item: Item) -> str:
        """An object that was asked for by itself."""

    def many(self, items: Sequence[Item], revision: int = 0) -> str:
        """Objects of a list. `revision`: the resourceVersion of the list; 0: it has none."""

    def appended(self, item: Item) -> str:
        """An object behind others that were shown before, as a watch brings them."""


def chosen(output: str | None, *, headers: bool = True) -> Format | None:
    """The format of one of OUTPUTS; None for the server's tables (nothing, or wide). Raises Failure (usage)."""
    if output is None or output == "wide":
        return None
    name, equals, argument = output.partition("=")
    if not equals and name in DOCUMENTS:
        from pinnace.cli.output.documents import Document

        return Document(name)
    if name == TEMPLATE:
        if not argument:
            raise usage("which template?", hint=f"such as -o {TEMPLATE}='{{.items[*].metadata.name}}'")
        from pinnace.cli import jsonpath
        from pinnace.cli.output import templates

        return templates.Templated(jsonpath.parse(argument))
    if name == COLUMNS:
        from pinnace.cli.output import templates

        return templates.Columned(templates.columns(argument), headers)
    raise usage(f'there is no output format "{output}"', hint=f"there are {OUTPUTS}")
