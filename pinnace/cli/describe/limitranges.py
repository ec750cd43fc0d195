"""All about a limit range: a line for each type and resource.

Source: kubectl, pkg/describe, LimitRangeDescriber.
"""

from collections.abc import Iterator

from pinnace.api.core_v1_pb2 import LimitRange, LimitRangeItem
from pinnace.cli.describe.common import head
from pinnace.cli.describe.text import Fields, Rows

HEADERS = ("Type", "Resource", "Min", "Max", "Default Request", "Default Limit", "Max Limit/Request Ratio")
UNSET = "-"


def describe(limit_range: LimitRange) -> Fields:
    return {**head(limit_range.metadata), "Limits": table(limit_range)}


def table(limit_range: LimitRange) -> Rows:
    return Rows(HEADERS, [row for item in limit_range.spec.limits for row in _rows(item)])


def _rows(item: LimitRangeItem) -> Iterator[tuple[str, ...]]:
    columns = (item.min, item.max, item.defaultRequest, item.default, item.maxLimitRequestRatio)
    for name in sorted({name for amounts in columns for name in amounts}):
        yield item.type, name, *(amounts[name].string if name in amounts else UNSET for amounts in columns)
