"""What there is to say about requests that are accepted: what will not do what it seems to.

    store --warn()--> gathering() of the call --> trailers (apiserver.services.handlers) --> Connection's on_warning

Source: https://kubernetes.io/blog/2020/09/03/warnings/
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Gathered: TypeAlias = dict[str, None]

MAX_WARNINGS = 20
"""Of one call: a batch may have thousands that say the same of as many objects."""
MAX_LENGTH = 200
"""Characters of a warning: all of them share the trailers with the refusal of a call."""

_gathered: ContextVar[Gathered | None] = ContextVar("warnings", default=None)


@contextmanager
def gathering() -> Iterator[Gathered]:
    """What is warned of meanwhile, each once, in order."""
    gathered: Gathered = {}
    token = _gathered.set(gathered)
    try:
        yield gathered
    finally:
        _gathered.reset(token)


def warn(warnings: Iterable[str]) -> None:
    """Tells whoever calls, if anybody listens."""
    gathered = _gathered.get()
    if gathered is None:
        return
    for warning in warnings:
        if len(gathered) >= MAX_WARNINGS:
            return
        gathered[warning[:MAX_LENGTH]] = None
