"""Limit ranges: what they do not say of containers follows from what they say."""

from apiserver.registry.strategies.without_status import WithoutStatus
from apiserver.registry.validation.limitranges import validate_limit_range, validate_limit_range_update
from pinnace.api.core_v1_pb2 import LimitRange
from pinnace.api.status import Violation


class LimitRangeStrategy(WithoutStatus):
    def prepare_create(self, obj: LimitRange) -> None:
        _set_defaults(obj)

    def validate(self, obj: LimitRange) -> list[Violation]:
        return validate_limit_range(obj)

    def prepare_update(self, obj: LimitRange, old: LimitRange) -> None:
        _set_defaults(obj)

    def validate_update(self, obj: LimitRange, old: LimitRange) -> list[Violation]:
        return validate_limit_range_update(obj, old)


def _set_defaults(limit_range: LimitRange) -> None:
    """The default limit is the maximum; the default request is the default limit, or else the minimum."""
    for item in limit_range.spec.limits:
        if item.type != "Container":
            continue
        for target, source in ((item.default, item.max), (item.defaultRequest, item.default), (item.defaultRequest, item.min)):
            for name in source.keys() - target.keys():
                target[name].CopyFrom(source[name])
