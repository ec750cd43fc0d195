"""Documents as JSON and YAML."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from pinnace.api.documents import is_string_unquoted

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_ALSO_BOOLEANS = frozenset("yYnN")
"""Booleans in YAML 1.1 and for some tools, but neither for PyYAML nor for pinnace."""


class _QuotingDumper(_Base):  # type: ignore[misc]  # the C implementation if available
    """Quotes every text that another YAML parser would read as another type. PyYAML does not quote `12e4567` and `08`, which it
    does not parse as numbers."""

    def text(self, text: str) -> yaml.ScalarNode:
        style = None if is_string_unquoted(text) and text not in _ALSO_BOOLEANS else "'"
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", text, style=style)
        return node


_QuotingDumper.add_representer(str, _QuotingDumper.text)


def dump_document(form: str, value: Mapping[str, Any]) -> str:
    """Format `value` as indented JSON or as YAML, with a final newline."""
    if form == "json":
        return json.dumps(value, indent=4, ensure_ascii=False) + "\n"
    text: str = yaml.dump(value, Dumper=_QuotingDumper, sort_keys=False, default_flow_style=False, allow_unicode=True)
    return text
