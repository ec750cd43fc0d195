"""The messages of Go's JSON parser (encoding/json), which clients of Kubernetes see."""

import json
import re

_STRING = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)
_BRACKET = re.compile(r"[][{}]")
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_EXPECTED = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Expecting ':' delimiter": "after object key",
    "Extra data": "after top-level value",
    "Invalid control character at": "in string literal",
    "Invalid \\escape": "in string escape code",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
    "Illegal trailing comma before end of array": "looking for beginning of value",
}
"""Go's words for the errors of Python's parser."""


def go_syntax_message(error: json.JSONDecodeError) -> str:
    """Return the message of Go's parser (encoding/json) for a syntax error."""
    text, position, problem = error.doc, error.pos, error.msg
    if problem.startswith("Illegal trailing comma"):
        position = next(at for at in range(position + 1, len(text)) if not text[at].isspace())
    elif problem.startswith("Invalid \\escape"):
        problem, position = "Invalid \\escape", position + 1
    if position >= len(text) or problem.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    if problem == "Expecting ',' delimiter":
        expected = "after array element" if _is_in_array(text[:position]) else "after object key:value pair"
    elif problem == "Expecting value" and (literal := _LITERALS.get(text[position])):
        matching = next(size for size in range(len(literal), 0, -1) if text.startswith(literal[:size], position))
        if position + matching == len(text):
            return "unexpected end of JSON input"
        position, expected = position + matching, f"in literal {literal} (expecting '{literal[matching]}')"
    else:
        expected = _EXPECTED.get(problem, problem)
    return f"invalid character {_quote_character(text[position])} {expected}"


def _is_in_array(text: str) -> bool:
    """Return whether the innermost open value at the end of the text is an array."""
    opened: list[str] = []
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        if bracket in "[{":
            opened.append(bracket)
        else:
            opened.pop()
    return opened[-1] == "["


def _quote_character(character: str) -> str:
    """Quote a character as Go does."""
    if character in "'\"":
        return r"'\''" if character == "'" else "'\"'"
    return f"'{json.dumps(character, ensure_ascii=not character.isprintable())[1:-1]}'"
