"""`wait --for=`: what is waited for, and whether an object is there yet. Pure.

    condition=TYPE[=STATUS]      status.conditions has it; TYPE and STATUS in any case, STATUS is True if nothing else is said
    jsonpath=PATH[=VALUE]        the path finds one value: that one, or any
    create, delete               the object is there, or is gone

As in Kubernetes several are waited for one after the other, and a condition does not count while it speaks of an earlier
generation of the object (`observedGeneration`).
Source: https://kubernetes.io/docs/reference/kubectl/generated/kubectl_wait/
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pinnace.cli.jsonpath import Path, parse_path, text_of
from pinnace.cli.outcomes import usage

CREATE = "create"
DELETE = "delete"
_JSONPATH = re.compile(r"(?P<path>\{.*\}|(?:[^\[\]{}=]|\[[^\]]*\])+)(?:=(?P<value>.*))?", re.DOTALL)


class Wanted(Protocol):
    def met(self, data: Mapping[str, Any]) -> bool:
        """Of the JSON of an object. Raises Failure where no later version could help."""


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: str = "true"
    """Both in small letters."""

    def met(self, data: Mapping[str, Any]) -> bool:
        status = data.get("status", {})
        for condition in status.get("conditions", ()):
            if condition.get("type", "").lower() == self.type:
                observed = condition.get("observedGeneration", status.get("observedGeneration"))
                outdated = observed is not None and observed < data["metadata"].get("generation", 0)
                return not outdated and condition.get("status", "").lower() == self.status
        return False


@dataclass(frozen=True, slots=True)
class Value:
    path: Path
    value: str | None
    """None: any."""

    def met(self, data: Mapping[str, Any]) -> bool:
        found = self.path.find([data])
        if len(found) > 1:
            raise usage("the path finds more than one value", hint="one value can be waited for, such as that of .items[0]")
        if not found or self.value is None:
            return bool(found)
        if isinstance(found[0], Mapping | list):
            hint = "name a field in it, or leave out the value: any will do then"
            raise usage("the path finds an object or a list, which is like no text", hint=hint)
        return text_of(found[0]) == self.value


def in_turn(texts: Sequence[str]) -> list[Wanted | str]:
    """What is waited for, one after the other: CREATE first, DELETE last. Raises Failure (usage)."""
    found = sorted(map(parse, texts), key=lambda wanted: wanted != CREATE)
    if DELETE in found[:-1]:
        raise usage("what is gone is waited for in vain", hint="--for=delete comes last")
    return found


def parse(text: str) -> Wanted | str:
    """CREATE and DELETE are themselves. Raises Failure (usage)."""
    kind, _, rest = text.partition("=")
    if text in (CREATE, DELETE):
        return text
    if kind == "condition" and rest:
        name, said, status = rest.lower().partition("=")
        if name and (status or not said):
            return Condition(name, status or "true")
    if kind == "jsonpath" and (match := _JSONPATH.fullmatch(rest)) is not None and match["value"] != "":
        value = match["value"]
        return Value(parse_path(match["path"]), None if value is None else value.strip("'\""))
    hint = "condition=TYPE[=STATUS], jsonpath=PATH[=VALUE], create or delete"
    raise usage(f'--for: "{text}" is nothing to wait for', hint=hint)
