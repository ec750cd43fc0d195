"""How many seats a call takes: how much work it is, measured in calls about one object.

Of an API server's CPU one create took 1.1 ms, and each one of a batch of a hundred 0.07 to 0.11 ms (`pinnace bench create`);
batches are given the benefit of the doubt. What a list will cost is taken from its limit, or for the most that it may be: as
in Kubernetes a seat for each hundred objects, and ten at most.
"""

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import MethodDescriptor

ITEMS = 20
"""Of a batch, for a seat."""
LISTED = 100
WIDEST_LIST = 10

Width = Callable[[Any], int]
"""Of a request."""


def width_of(method: MethodDescriptor) -> Width:
    fields = method.input_type.fields_by_name
    if "items" in fields:
        return lambda request: 1 + len(request.items) // ITEMS
    if method.name == "List" and "options" in fields:
        return lambda request: _of_list(request.options.limit)
    return lambda request: 1


def _of_list(limit: int) -> int:
    return min(-(-limit // LISTED), WIDEST_LIST) if limit > 0 else WIDEST_LIST
