"""Which controllers there are: a new one is a line here."""

from collections.abc import Sequence

from controllers.controller import Controller, Shared
from controllers.nodelifecycle.eviction import TaintEviction
from controllers.nodelifecycle.lifecycle import NodeLifecycle, Options


def build(shared: Shared, options: Options) -> Sequence[Controller]:
    return [
        NodeLifecycle(shared, options),
        TaintEviction(shared),
    ]
