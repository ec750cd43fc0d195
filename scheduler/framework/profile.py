"""The plugins of one profile: who takes part where, and whether that can work."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler.framework.interface import BatchBindPlugin, Plugin
from scheduler.framework.points import PREPARED_BY, Point, takes_part


@dataclass(frozen=True, slots=True)
class Enabled:
    """A plugin of a profile. The weight is its score's; with 0 it does not score."""

    plugin: Plugin
    weight: float = 1.0


Profile = Mapping[Point, Sequence[Enabled]]
"""Who takes part in each point, in which order."""


def everywhere(enabled: Iterable[Enabled]) -> Profile:
    """These plugins, in this order, each at all points that it has a method for."""
    plugins = list(enabled)
    return {point: [each for each in plugins if takes_part(each.plugin, point)] for point in Point}


def check(profile: Profile) -> None:
    """Raises ValueError when the plugins do not make a profile."""
    names = {point: [each.plugin.name for each in profile.get(point, ())] for point in Point}
    _check_names(profile, names)
    if len(sorters := names[Point.QUEUE_SORT]) != 1:
        found = ", ".join(sorters) or "none"
        raise ValueError(f"exactly one plugin must sort the queue, found {found}; PrioritySort is the usual one")
    for point, preparing in PREPARED_BY.items():
        for each in profile.get(point, ()):
            if takes_part(each.plugin, preparing) and each.plugin.name not in names[preparing]:
                raise ValueError(f"{each.plugin.name} is enabled at {point}, but not at {preparing}, where it prepares it")
    batches = [isinstance(each.plugin, BatchBindPlugin) for each in profile.get(Point.BIND, ())]
    if not batches:
        raise ValueError("at least one plugin must bind; DefaultBinder is the usual one")
    if any(batches[:-1]):
        unheard = ", ".join(names[Point.BIND][batches.index(True) + 1 :])
        raise ValueError(f"{unheard} would never be asked to bind: DefaultBinder, before it, binds every pod")


def _check_names(profile: Profile, names: Mapping[Point, Sequence[str]]) -> None:
    different = {id(each.plugin): each.plugin.name for enabled in profile.values() for each in enabled}
    counts = [Counter(different.values()), *map(Counter, names.values())]
    if twice := {name for counter in counts for name, number in counter.items() if number > 1}:
        raise ValueError(f"plugins are enabled twice: {', '.join(sorted(twice))}")
