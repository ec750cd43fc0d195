"""`--sort-by`: objects in the order of what a path finds in each. Pure.

Nothing goes before everything, numbers and quantities by their amount before other text, and text with its numbers as numbers:
web-2 before web-10. Objects that are alike stay in the server's order.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeVar

from pinnace.api import quantity
from pinnace.api.codec import to_dict
from pinnace.api.resources import Object
from pinnace.cli.jsonpath import Path, text_of
from pinnace.cli.outcomes import usage

T = TypeVar("T", bound=Object)
Key = tuple[int, Decimal, tuple[tuple[int, str, str], ...]]

_NOTHING: Key = (0, Decimal(0), ())


def ordered(objs: Sequence[T], path: Path) -> list[T]:
    """Raises Failure: usage when the path finds nothing in any object, and what the path raises."""
    keys = [_key(path.find([to_dict(obj)])) for obj in objs]
    if objs and all(key == _NOTHING for key in keys):
        raise usage("--sort-by: the path finds nothing in any object", hint="`-o yaml` shows which fields there are")
    return [objs[at] for at in sorted(range(len(objs)), key=keys.__getitem__)]


def _key(found: Sequence[Any]) -> Key:
    if not found or found[0] is None:
        return _NOTHING
    text = text_of(found[0])
    try:
        return 1, quantity.parse(text), ()
    except quantity.QuantityError:
        return 2, Decimal(0), tuple(_part(number, word) for number, word in re.findall(r"([0-9]+)|([^0-9]+)", text))


def _part(number: str, word: str) -> tuple[int, str, str]:
    """A number with more digits is larger. (Of thousands of them, which anybody may write, Python reads none.)"""
    digits = number.lstrip("0")
    return len(digits), digits, word
