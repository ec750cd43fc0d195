"""Objects that only the garbage collection frees."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def freed_at_once(kind: type) -> Iterator[None]:
    """Assert that no new object of this type outlives the block. The collector, which would free cycles later, is off."""
    gc.collect()
    before = {id(item) for item in gc.get_objects() if type(item) is kind}
    gc.disable()
    try:
        yield
        left = [item for item in gc.get_objects() if type(item) is kind and id(item) not in before]
        assert not left, f"{len(left)} objects of type {kind.__name__} are kept by a reference cycle"
    finally:
        gc.enable()
