"""The configuration as a value: profiles, the plugins that each point enables, and the frameworks built from them.

The classic names of built-in plugins, such as PodFitsResources, are accepted as aliases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pinnace.api import wellknown
from pinnace.api.resources import Resource
from pinnace.api.wellknown import SCHEDULER_ELECTION
from pinnace.runtime.configuration import ConfigurationError, fields, items, text, weight
from scheduler.extenders.extenders import Extenders
from scheduler.extenders.interface import ExtenderConfiguration
from scheduler.framework import BindPlugin, Handle, Plugin
from scheduler.framework.handle import Offline
from scheduler.framework.profile import METHODS, Enabled, PluginLoadError, Point, find, make, takes_part
from scheduler.framework.runtime import Framework
from scheduler.plugins import DEFAULTS, OPTIONAL
from scheduler.plugins.node_resources import NodeResourcesFit

ALIASES: Mapping[str, str] = {
    "PodFitsResources": "NodeResourcesFit",
    "PodFitsHostPorts": "NodePorts",
    "PodFitsPorts": "NodePorts",
    "HostName": "NodeName",
    "MatchNodeSelector": "NodeAffinity",
    "PodToleratesNodeTaints": "TaintToleration",
    "CheckNodeUnschedulable": "NodeUnschedulable",
    "CheckNodeMemoryPressure": "TaintToleration",
    "CheckNodeDiskPressure": "TaintToleration",
    "CheckNodePIDPressure": "TaintToleration",
    "MatchInterPodAffinity": "InterPodAffinity",
    "EvenPodsSpread": "PodTopologySpread",
    "NoDiskConflict": "VolumeRestrictions",
    "NoVolumeZoneConflict": "VolumeZone",
    "MaxCSIVolumeCountPred": "NodeVolumeLimits",
    "CheckVolumeBinding": "VolumeBinding",
    "NoVolumeNodeConflict": "VolumeBinding",
    "LeastRequestedPriority": "NodeResourcesFit",
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "SelectorSpreadPriority": "SelectorSpread",
    "ServiceSpreadingPriority": "SelectorSpread",
    "InterPodAffinityPriority": "InterPodAffinity",
    "NodeAffinityPriority": "NodeAffinity",
    "TaintTolerationPriority": "TaintToleration",
    "ImageLocalityPriority": "ImageLocality",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "NodePreferAvoidPodsPriority": "NodePreferAvoidPods",
}


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
    scheduler_name: str = wellknown.DEFAULT_SCHEDULER
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


def build(configuration: Configuration, handle: Handle, binders: Sequence[BindPlugin] = ()) -> dict[str, Framework]:
    """By scheduler name. `binders`: asked to bind before all plugins of the profiles. Raises ConfigurationError when a plugin
    cannot be made, or the plugins together are no profile."""
    first, *others = configuration.profiles
    for profile in others:
        if _sorting(profile) != _sorting(first):
            raise ConfigurationError(f"queueSort must be the same in {first.scheduler_name} and {profile.scheduler_name}")
    ignored = [name for extender in configuration.extenders for name, ignored in extender.managed_resources.items() if ignored]
    return {
        profile.scheduler_name: _framework(_ignoring(ignored, profile), handle, binders) for profile in configuration.profiles
    }


def check(configuration: Configuration) -> Configuration:
    """Raises ConfigurationError when the configuration cannot be built."""
    try:
        extenders = Extenders(configuration.extenders)
    except OSError as error:
        raise ConfigurationError(f"extenders: tlsConfig: {error}") from error
    build(configuration, Offline(), extenders.binders)
    return configuration


def needs(configuration: Configuration) -> list[Resource[Any]]:
    """The resources of which some plugin needs the objects."""
    return _stated("needs", configuration)


def writes(configuration: Configuration) -> list[Resource[Any]]:
    """The resources of which some plugin writes objects."""
    return _stated("writes", configuration)


def _stated(attribute: str, configuration: Configuration) -> list[Resource[Any]]:
    classes = [profile.sources[name].plugin for profile in configuration.profiles for name in profile.plugins]
    return list(dict.fromkeys(resource for plugin in classes for resource in getattr(plugin, attribute, ())))


def _ignoring(resources: Sequence[str], profile: ProfileConfiguration) -> ProfileConfiguration:
    """NodeResourcesFit leaves these to extenders."""
    if not resources:
        return profile
    given = profile.args.get(NodeResourcesFit.name, {})
    named = given.get("ignoredResources", [])
    if not isinstance(named, list):
        return profile  # the plugin will say so
    args = {**given, "ignoredResources": [*named, *resources]}
    return replace(profile, args={**profile.args, NodeResourcesFit.name: args})


def _framework(profile: ProfileConfiguration, handle: Handle, binders: Sequence[BindPlugin]) -> Framework:
    try:
        plugins = {
            name: make(profile.sources[name].plugin, profile.sources[name].spec, profile.args.get(name, {}), handle)
            for name in profile.plugins
        }
        points = {
            point: [Enabled(plugins[name], profile.weights[name] if point is Point.SCORE else 0.0) for name in names]
            for point, names in profile.points.items()
        }
        points[Point.BIND] = [*map(Enabled, binders), *points[Point.BIND]]
        return Framework(profile.scheduler_name, points)
    except (PluginLoadError, ValueError) as error:
        raise ConfigurationError(f"profile {profile.scheduler_name}: {error}") from error


def _sorting(profile: ProfileConfiguration) -> list[tuple[str, Mapping[str, Any]]]:
    names = profile.points[Point.QUEUE_SORT]
    return [(profile.sources[name].spec, profile.args.get(name, {})) for name in names]
