"""The extension points by the names that they have in a configuration, in the order in which a pod passes them."""

from collections.abc import Mapping
from enum import StrEnum

from scheduler.framework import interface


class Point(StrEnum):
    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"


METHODS: Mapping[Point, tuple[type, str]] = {
    Point.PRE_ENQUEUE: (interface.PreEnqueuePlugin, "pre_enqueue"),
    Point.QUEUE_SORT: (interface.QueueSortPlugin, "sort_key"),
    Point.PRE_FILTER: (interface.PreFilterPlugin, "pre_filter"),
    Point.FILTER: (interface.FilterPlugin, "filter"),
    Point.POST_FILTER: (interface.PostFilterPlugin, "post_filter"),
    Point.PRE_SCORE: (interface.PreScorePlugin, "pre_score"),
    Point.SCORE: (interface.ScorePlugin, "score"),
    Point.RESERVE: (interface.ReservePlugin, "reserve"),
    Point.PERMIT: (interface.PermitPlugin, "permit"),
    Point.PRE_BIND: (interface.PreBindPlugin, "pre_bind"),
    Point.BIND: (interface.BindPlugin, "bind"),
    Point.POST_BIND: (interface.PostBindPlugin, "post_bind"),
}
"""The method with which a plugin takes part in each point, and the Protocol that declares it."""

PREPARED_BY: Mapping[Point, Point] = {Point.FILTER: Point.PRE_FILTER, Point.SCORE: Point.PRE_SCORE}
"""A plugin that has both takes part in both, or in neither: the one leaves in the state what the other reads."""


def takes_part(plugin: object, point: Point) -> bool:
    """Of a plugin, or its class."""
    if point is Point.BIND and getattr(plugin, "in_batches", False):
        return True
    return hasattr(plugin, METHODS[point][1])
