"""`plugins` of a profile: which plugin takes part where, and in which order.

To begin with, the built-in plugins are enabled at all their points. In `multiPoint` first `disabled` (by name, or "*") takes
away, then `enabled` replaces in place, or adds. The set of one point then says for that point alone:

* `disabled` takes away what `multiPoint` enabled;
* `enabled` comes in this order: those that `multiPoint` has enabled there too (the point's own weight counts), then the rest of
  `multiPoint`, then those that are enabled at this point only.

Source: expandMultiPointPlugins and getScoreWeights in k8s.io/kubernetes/pkg/scheduler/framework/runtime/framework.go
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinnace.runtime.configuration import ConfigurationError, fields, items, text, weight
from scheduler.config.model import Source
from scheduler.framework.loader import PluginLoadError, find
from scheduler.framework.points import METHODS, Point, takes_part
from scheduler.plugins import DEFAULTS, OPTIONAL
from scheduler.plugins.aliases import ALIASES

MULTI_POINT = "multiPoint"
EVERYTHING = "*"
NO_WEIGHT_GIVEN = 1.0
"""What a plugin weighs that is enabled without a weight, also one that weighs more where nobody names it."""


@dataclass(frozen=True, slots=True)
class _Set:
    enabled: Mapping[str, float]
    """Weights by name; 0 where it is left out."""
    disabled: frozenset[str]

    def leaves(self, name: str) -> bool:
        return name not in self.disabled and EVERYTHING not in self.disabled


@dataclass(frozen=True, slots=True)
class Resolved:
    points: Mapping[Point, Sequence[str]]
    weights: Mapping[str, float]


def resolve(raw: Any, path: str, sources: dict[str, Source]) -> Resolved:
    """`sources`: the plugins that are known by name; those that are named for the first time are added to it."""
    given = fields(raw, path, (MULTI_POINT, *Point))
    sets = {name: _set(given.get(name, {}), f"{path}.{name}", sources) for name in (MULTI_POINT, *Point)}
    multi = sets[MULTI_POINT]
    for name in multi.enabled:
        demand_part(name, sources[name], f"{path}.{MULTI_POINT}.enabled")
    everywhere = dict.fromkeys((*filter(multi.leaves, DEFAULTS), *multi.enabled))
    points: dict[Point, Sequence[str]] = {}
    for point in Point:
        own = sets[point]
        for name in own.enabled:
            if not takes_part(sources[name].plugin, point):
                raise ConfigurationError(f"{path}.{point}.enabled: {name} takes no part in {point}")
        general = [name for name in everywhere if takes_part(sources[name].plugin, point) and own.leaves(name)]
        both = [name for name in own.enabled if name in general]
        points[point] = list(dict.fromkeys((*both, *general, *own.enabled)))
    weights = {name: _weight(name, sets[Point.SCORE], multi) for name in points[Point.SCORE]}
    points[Point.SCORE] = [name for name in points[Point.SCORE] if weights[name]]
    return Resolved(points, {name: weights[name] for name in points[Point.SCORE]})


def _weight(name: str, at_score: _Set, multi: _Set) -> float:
    """0: it does not score."""
    for named in (at_score.enabled, multi.enabled):
        if name in named:
            return named[name] or NO_WEIGHT_GIVEN
    return DEFAULTS[name][1]


def demand_part(name: str, found: Source, path: str) -> None:
    """Raises ConfigurationError for a plugin that would do nothing."""
    if not any(takes_part(found.plugin, point) for point in Point):
        methods = ", ".join(method for _, method in METHODS.values())
        raise ConfigurationError(f"{path}: {name} takes part in nothing: it has no method {methods}")


def source(spec: str, path: str, sources: dict[str, Source]) -> tuple[str, Source]:
    """The plugin that is named so, and its name; it is added to `sources`."""
    spec = ALIASES.get(spec, spec)
    for name, known in sources.items():
        if spec in (name, known.spec):
            return name, known
    if ":" not in spec:
        raise ConfigurationError(f'{path}: no plugin "{spec}"; there are {", ".join((*DEFAULTS, *OPTIONAL))}, and module:Class')
    try:
        found = Source(spec, find(spec))
    except PluginLoadError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    name = str(found.plugin.name)
    if name in sources:
        raise ConfigurationError(f"{path}: {spec} is called {name}, as {sources[name].spec} is")
    sources[name] = found
    return name, found


def _set(raw: Any, path: str, sources: dict[str, Source]) -> _Set:
    both = fields(raw, path, ("enabled", "disabled"))
    enabled: dict[str, float] = {}
    for index, item in enumerate(items(both.get("enabled", []), f"{path}.enabled")):
        where = f"{path}.enabled[{index}]"
        entry = fields(item, where, ("name", "weight"))
        name, _ = source(text(entry.get("name"), f"{where}.name"), where, sources)
        if name in enabled:
            raise ConfigurationError(f"{where}: {name} is enabled twice")
        enabled[name] = weight(entry.get("weight", 0), f"{where}.weight")
    disabled = set()
    for index, item in enumerate(items(both.get("disabled", []), f"{path}.disabled")):
        where = f"{path}.disabled[{index}]"
        spec = text(fields(item, where, ("name", "weight")).get("name"), f"{where}.name")
        disabled.add(spec if spec == EVERYTHING else source(spec, where, sources)[0])
    return _Set(enabled, frozenset(disabled))
