"""What a configuration says once everything that it left out is filled in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.api import defaults
from pinnace.api.wellknown import SCHEDULER_ELECTION
from scheduler.extenders.configuration import ExtenderConfiguration
from scheduler.framework import Plugin
from scheduler.framework.points import Point, takes_part
from scheduler.plugins import DEFAULTS, OPTIONAL


@dataclass(frozen=True, slots=True)
class Source:
    """A plugin's class, and how a configuration names it: by its name when it is built in, else by `module:Class`."""

    spec: str
    plugin: type[Plugin] = field(compare=False)


def built_in() -> dict[str, Source]:
    plugins = {**{name: plugin for name, (plugin, _) in DEFAULTS.items()}, **OPTIONAL}
    return {name: Source(name, plugin) for name, plugin in plugins.items()}


def default_points() -> Mapping[Point, Sequence[str]]:
    scoring = default_weights()
    return {
        point: [
            name
            for name, (plugin, _) in DEFAULTS.items()
            if takes_part(plugin, point) and (point is not Point.SCORE or name in scoring)
        ]
        for point in Point
    }


def default_weights() -> Mapping[str, float]:
    return {name: weight for name, (plugin, weight) in DEFAULTS.items() if weight and takes_part(plugin, Point.SCORE)}


@dataclass(frozen=True, slots=True)
class ProfileConfiguration:
    scheduler_name: str = defaults.SCHEDULER
    points: Mapping[Point, Sequence[str]] = field(default_factory=default_points)
    """Names of plugins, in the order in which they run."""
    weights: Mapping[str, float] = field(default_factory=default_weights)
    """Of those that score."""
    args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By plugin; only what was given."""
    sources: Mapping[str, Source] = field(default_factory=built_in)
    """By name, of all plugins that are named above."""

    @property
    def plugins(self) -> list[str]:
        """Those that take part somewhere."""
        return list(dict.fromkeys(name for names in self.points.values() for name in names))


@dataclass(frozen=True, slots=True)
class Configuration:
    election: str = SCHEDULER_ELECTION
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    profiles: Sequence[ProfileConfiguration] = (ProfileConfiguration(),)
    extenders: Sequence[ExtenderConfiguration] = ()
    """In the order in which they are asked."""
    seed: int = 0
    """Seed for choosing among nodes with equal scores. Not in the file: Kubernetes has no such field."""
