"""Paths of fields in schemas: `.spec.color`, `.spec['a.b']`, as fieldPath of rules and selectableFields have them.

Source: ValidFieldPath in k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go of Kubernetes 1.36.
"""

import re
from collections.abc import Mapping
from typing import Any

from pinnace.apiextensions.schema import mapping

MAX_LENGTH = 10_000
_TOKEN = re.compile(r"[.\[\]]|'(?:[^'\\]|\\.)*'|'.*|[^.\[\]]+", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}
_NO_FIELD, _END = "does not refer to a valid field", "unexpected end of JSON path"


class FieldPathError(ValueError):
    """The path leads to no declared field. The message is Kubernetes'."""


def find_field(path: str, schema: Mapping[str, Any], *, brackets: bool = True) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Return the names on the path, and the schema of its last field. `brackets`: `['name']` is allowed.

    Raises FieldPathError.
    """
    if len(path) > MAX_LENGTH:
        raise FieldPathError(f"has more than {MAX_LENGTH} characters")
    names = list[str]()
    tokens = iter(_TOKEN.findall(path))
    for token in tokens:
        if token == "[":
            if not brackets:
                raise FieldPathError("array notation is not allowed")
            name = _unquote(_next_token(tokens))
            schema = _child_schema(schema, name)
            if (closing := _next_token(tokens)) != "]":
                raise FieldPathError(f"expected ] but got {closing}")
        elif token == ".":
            name = _next_token(tokens)
            schema = _child_schema(schema, name)
        else:
            raise FieldPathError(f"expected [ or . but got: {token}")
        names.append(name)
    return tuple(names), schema


def _next_token(tokens: Any) -> str:
    token: str | None = next(tokens, None)
    if token is None:
        raise FieldPathError(_END)
    return token


def _unquote(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {token}")

    def unescape(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise FieldPathError(f"invalid string literal: invalid escape char {match[0]}")
        return _ESCAPES[match[1]]

    return _ESCAPE.sub(unescape, token[1:-1])


def _child_schema(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    properties, additional = mapping(schema.get("properties")), schema.get("additionalProperties")
    if properties:
        child = properties.get(name)
    elif isinstance(additional, dict):
        child = additional
    else:
        child = None
    if not isinstance(child, dict):
        raise FieldPathError(_NO_FIELD)
    return child
