"""DefaultBinder: binds are sent by the binder (`scheduler.binding`), in batches, under the leader's fence."""

from typing import Literal


class DefaultBinder:
    name = "DefaultBinder"
    in_batches: Literal[True] = True
