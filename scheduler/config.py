"""The scheduler configuration: the supported fields of KubeSchedulerConfiguration v1.

    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    leaderElection: {resourceName: scheduler}
    podInitialBackoffSeconds: 1
    podMaxBackoffSeconds: 10
    profiles:
    - schedulerName: default-scheduler
      plugins:
        multiPoint: {enabled: [{name: "my_plugins:GreenFirst", weight: 5}]}
        filter: {disabled: [{name: NodePorts}]}
        score: {enabled: [{name: NodeResourcesFit, weight: 3}], disabled: [{name: "*"}]}
      pluginConfig:
      - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}
    extenders:
    - {urlPrefix: "http://127.0.0.1:8888/scheduler", filterVerb: filter, prioritizeVerb: prioritize, weight: 1}

A single profile may omit schedulerName; the default is default-scheduler. With several profiles, each needs a schedulerName.
An out-of-tree plugin is named module:Class or path/file.py:Class. Relative paths, also those of tlsConfig, begin at the folder
of the configuration file. Predicate and priority names of older Kubernetes releases are accepted as aliases. An unknown field
is an error that names the field.

    text --parse_configuration--> Configuration --build_frameworks--> frameworks
      ^------ write_configuration ------'

`check_configuration` builds the frameworks against a handle without a cluster.
"""

import hashlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from pinnace.api import documents, names, wellknown
from pinnace.api.resources import Resource
from pinnace.api.wellknown import SCHEDULER_ELECTION
from pinnace.runtime.configuration import (
    ConfigurationError,
    parse_bool,
    parse_duration,
    parse_fields,
    parse_list,
    parse_seconds,
    parse_text,
    parse_weight,
)
from pinnace.scheduler.extenders.client import METHODS as RPC_METHODS
from pinnace.scheduler.extenders.extender import Extenders
from pinnace.scheduler.extenders.interface import (
    BIND,
    FILTER,
    HTTP_TIMEOUT,
    PREEMPT,
    PRIORITIZE,
    ExtenderConfiguration,
    ExtenderTls,
)
from pinnace.scheduler.framework import BindPlugin, Handle, Plugin
from pinnace.scheduler.framework.interface import CompletesArgs
from pinnace.scheduler.framework.profile import (
    METHODS,
    Enabled,
    Offline,
    PluginLoadError,
    Point,
    create_plugin,
    implements_point,
    load_plugin_class,
)
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.plugins.node_resources import NodeResourcesFit
from pinnace.scheduler.plugins.registry import DEFAULT_PLUGINS, OPTIONAL_PLUGINS

log = logging.getLogger(__name__)

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
MULTI_POINT = "multiPoint"
EVERYTHING = "*"
NO_WEIGHT_GIVEN = 1.0
"""Weight of a plugin that is enabled without a weight. It replaces the plugin's default weight."""
_VERBS = {"filterVerb": FILTER, "prioritizeVerb": PRIORITIZE, "preemptVerb": PREEMPT, "bindVerb": BIND}
_EXTENDER_FIELDS = (
    "urlPrefix",
    *_VERBS,
    "weight",
    "enableHTTPS",
    "tlsConfig",
    "httpTimeout",
    "nodeCacheCapable",
    "managedResources",
    "ignorable",
)
_TLS_FIELDS = ("insecure", "caFile", "certFile", "keyFile")
API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
_FIELDS = (
    "apiVersion",
    "kind",
    "leaderElection",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
    "extenders",
)


@dataclass(frozen=True, slots=True)
class PluginSource:
    """A plugin's class, and its name in the configuration: the plugin name if it is built in, otherwise `module:Class`."""

    spec: str
    plugin: type[Plugin] = field(compare=False)


def built_in() -> dict[str, PluginSource]:
    plugins = {**{name: plugin for name, (plugin, _) in DEFAULT_PLUGINS.items()}, **OPTIONAL_PLUGINS}
    return {name: PluginSource(name, plugin) for name, plugin in plugins.items()}


def default_points() -> Mapping[Point, Sequence[str]]:
    scoring = default_weights()
    return {
        point: [
            name
            for name, (plugin, _) in DEFAULT_PLUGINS.items()
            if implements_point(plugin, point) and (point is not Point.SCORE or name in scoring)
        ]
        for point in Point
    }


def default_weights() -> Mapping[str, float]:
    return {
        name: weight for name, (plugin, weight) in DEFAULT_PLUGINS.items() if weight and implements_point(plugin, Point.SCORE)
    }


@dataclass(frozen=True, slots=True)
class ProfileConfiguration:
    scheduler_name: str = wellknown.DEFAULT_SCHEDULER
    points: Mapping[Point, Sequence[str]] = field(default_factory=default_points)
    """Plugin names in call order."""
    weights: Mapping[str, float] = field(default_factory=default_weights)
    """The weights of plugins that score."""
    args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Arguments from the configuration, by plugin. Defaults are not included."""
    sources: Mapping[str, PluginSource] = field(default_factory=built_in)
    """All plugins of this profile, by name."""

    @property
    def plugins(self) -> list[str]:
        """The plugins that are enabled at one extension point or more."""
        return list(dict.fromkeys(name for names in self.points.values() for name in names))


@dataclass(frozen=True, slots=True)
class Configuration:
    election: str = SCHEDULER_ELECTION
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    profiles: Sequence[ProfileConfiguration] = (ProfileConfiguration(),)
    extenders: Sequence[ExtenderConfiguration] = ()
    """In call order."""
    seed: int = 0
    """Seed of the choice between nodes with equal scores. It is not part of the file, because Kubernetes has no such field."""


@dataclass(frozen=True, slots=True)
class _PluginSet:
    enabled: Mapping[str, float]
    """Weights by name. A weight of 0 means that the entry has none."""
    disabled: frozenset[str]

    def leaves(self, name: str) -> bool:
        return name not in self.disabled and EVERYTHING not in self.disabled


@dataclass(frozen=True, slots=True)
class ResolvedPlugins:
    points: Mapping[Point, Sequence[str]]
    weights: Mapping[str, float]


def resolve_plugins(raw: Any, path: str, sources: dict[str, PluginSource]) -> ResolvedPlugins:
    """Merge the plugin sets of a profile. `sources` maps known names to plugins; newly named plugins are added to it."""
    given = parse_fields(raw, path, (MULTI_POINT, *Point))
    sets = {name: _parse_plugin_set(given.get(name, {}), f"{path}.{name}", sources) for name in (MULTI_POINT, *Point)}
    multi = sets[MULTI_POINT]
    for name in multi.enabled:
        require_extension_point(name, sources[name], f"{path}.{MULTI_POINT}.enabled")
    everywhere = dict.fromkeys((*filter(multi.leaves, DEFAULT_PLUGINS), *multi.enabled))
    points: dict[Point, Sequence[str]] = {}
    for point in Point:
        own = sets[point]
        for name in own.enabled:
            if not implements_point(sources[name].plugin, point):
                raise ConfigurationError(f"{path}.{point}.enabled: {name} does not implement {point}")
        general = [name for name in everywhere if implements_point(sources[name].plugin, point) and own.leaves(name)]
        both = [name for name in own.enabled if name in general]
        points[point] = list(dict.fromkeys((*both, *general, *own.enabled)))
    weights = {name: _plugin_weight(name, sets[Point.SCORE], multi) for name in points[Point.SCORE]}
    points[Point.SCORE] = [name for name in points[Point.SCORE] if weights[name]]
    return ResolvedPlugins(points, {name: weights[name] for name in points[Point.SCORE]})


def _plugin_weight(name: str, at_score: _PluginSet, multi: _PluginSet) -> float:
    """Return the plugin's weight in scoring, or 0 if it does not score."""
    for named in (at_score.enabled, multi.enabled):
        if name in named:
            return named[name] or NO_WEIGHT_GIVEN
    return DEFAULT_PLUGINS[name][1]


def require_extension_point(name: str, found: PluginSource, path: str) -> None:
    """Raise ConfigurationError for a plugin that implements no extension point."""
    if not any(implements_point(found.plugin, point) for point in Point):
        methods = ", ".join(method for _, method in METHODS.values())
        raise ConfigurationError(f"{path}: {name} implements no extension point: it has no method {methods}")


def parse_source(spec: str, path: str, sources: dict[str, PluginSource]) -> tuple[str, PluginSource]:
    """Return the name and source of the plugin, and add the plugin to `sources`."""
    spec = ALIASES.get(spec, spec)
    for name, known in sources.items():
        if spec in (name, known.spec):
            return name, known
    if ":" not in spec:
        raise ConfigurationError(
            f'{path}: no plugin "{spec}"; valid names are {", ".join((*DEFAULT_PLUGINS, *OPTIONAL_PLUGINS))}, and module:Class'
        )
    try:
        result = PluginSource(spec, load_plugin_class(spec))
    except PluginLoadError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    name = str(result.plugin.name)
    if name in sources:
        raise ConfigurationError(f"{path}: {spec}: duplicate plugin name {name}, also used by {sources[name].spec}")
    sources[name] = result
    return name, result


def _parse_plugin_set(raw: Any, path: str, sources: dict[str, PluginSource]) -> _PluginSet:
    both = parse_fields(raw, path, ("enabled", "disabled"))
    enabled: dict[str, float] = {}
    for index, item in enumerate(parse_list(both.get("enabled", []), f"{path}.enabled")):
        where = f"{path}.enabled[{index}]"
        entry = parse_fields(item, where, ("name", "weight"))
        name, _ = parse_source(parse_text(entry.get("name"), f"{where}.name"), where, sources)
        if name in enabled:
            raise ConfigurationError(f"{where}: {name} is enabled twice")
        enabled[name] = parse_weight(entry.get("weight", 0), f"{where}.weight")
    disabled = set()
    for index, item in enumerate(parse_list(both.get("disabled", []), f"{path}.disabled")):
        where = f"{path}.disabled[{index}]"
        spec = parse_text(parse_fields(item, where, ("name", "weight")).get("name"), f"{where}.name")
        disabled.add(spec if spec == EVERYTHING else parse_source(spec, where, sources)[0])
    return _PluginSet(enabled, frozenset(disabled))


def build_frameworks(configuration: Configuration, handle: Handle, binders: Sequence[BindPlugin] = ()) -> dict[str, Framework]:
    """Return the frameworks by scheduler name. `binders` are called before the profiles' bind plugins.

    Raise ConfigurationError if a plugin cannot be constructed, or if the plugins do not form a valid profile.
    """
    first, *others = configuration.profiles
    for profile in others:
        if _sorting_plugin(profile) != _sorting_plugin(first):
            raise ConfigurationError(f"queueSort must be the same in {first.scheduler_name} and {profile.scheduler_name}")
    ignored = [name for extender in configuration.extenders for name, ignored in extender.managed_resources.items() if ignored]
    return {
        profile.scheduler_name: _build_framework(_ignore_resources(ignored, profile), handle, binders)
        for profile in configuration.profiles
    }


def check_configuration(configuration: Configuration) -> Configuration:
    """Raise ConfigurationError if the configuration cannot be built."""
    try:
        extenders = Extenders(configuration.extenders)
    except OSError as error:
        raise ConfigurationError(f"extenders: tlsConfig: {error}") from error
    build_frameworks(configuration, Offline(), extenders.binders)
    return configuration


def required_resources(configuration: Configuration) -> list[Resource[Any]]:
    """Return the resources whose objects the plugins read."""
    return _collect_resources("needs", configuration)


def written_resources(configuration: Configuration) -> list[Resource[Any]]:
    """Return the resources whose objects the plugins write."""
    return _collect_resources("writes", configuration)


def _collect_resources(attribute: str, configuration: Configuration) -> list[Resource[Any]]:
    classes = [profile.sources[name].plugin for profile in configuration.profiles for name in profile.plugins]
    return list(dict.fromkeys(resource for plugin in classes for resource in getattr(plugin, attribute, ())))


def _ignore_resources(resources: Sequence[str], profile: ProfileConfiguration) -> ProfileConfiguration:
    """Add the resources to the ignoredResources of NodeResourcesFit, which leaves them to extenders."""
    if not resources:
        return profile
    given = profile.args.get(NodeResourcesFit.name, {})
    named = given.get("ignoredResources", [])
    if not isinstance(named, list):
        return profile  # the plugin reports the error
    args = {**given, "ignoredResources": [*named, *resources]}
    return replace(profile, args={**profile.args, NodeResourcesFit.name: args})


def _build_framework(profile: ProfileConfiguration, handle: Handle, binders: Sequence[BindPlugin]) -> Framework:
    try:
        plugins = {
            name: create_plugin(profile.sources[name].plugin, profile.sources[name].spec, profile.args.get(name, {}), handle)
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


def _sorting_plugin(profile: ProfileConfiguration) -> list[tuple[str, Mapping[str, Any]]]:
    names = profile.points[Point.QUEUE_SORT]
    return [(profile.sources[name].spec, profile.args.get(name, {})) for name in names]


def parse_extenders(raw: Any, path: str) -> tuple[ExtenderConfiguration, ...]:
    """Parse the list of extenders. Raise ConfigurationError if it is invalid."""
    extender_configurations = tuple(
        _parse_extender(item, f"{path}[{index}]") for index, item in enumerate(parse_list(raw, path))
    )
    binders = [extender for extender in extender_configurations if BIND in extender.verbs]
    if len(binders) > 1:
        raise ConfigurationError(
            f"{path}: found {len(binders)} extenders implementing bind: only one extender can implement bind"
        )
    seen: set[str] = set()
    for index, extender in enumerate(extender_configurations):
        if extender.url_prefix in (other.url_prefix for other in extender_configurations[:index]):
            raise ConfigurationError(f"{path}[{index}].urlPrefix: duplicate urlPrefix {extender.url_prefix}")
        for name in extender.managed_resources:
            if name in seen:
                raise ConfigurationError(f"{path}[{index}].managedResources: duplicate extender managed resource name {name}")
            seen.add(name)
    return extender_configurations


def write_extender(extender: ExtenderConfiguration) -> Mapping[str, Any]:
    """Return the extender as a configuration with all defaults filled in. Verbs without a value are omitted."""
    given = {name: extender.verbs[verb] for name, verb in _VERBS.items() if verb in extender.verbs}
    tls = extender.tls
    secure = (
        {"insecure": tls.insecure, "caFile": tls.ca_file, "certFile": tls.cert_file, "keyFile": tls.key_file} if tls else {}
    )
    return {
        "urlPrefix": extender.url_prefix,
        **given,
        "weight": extender.weight,
        "enableHTTPS": extender.enable_https,
        **({"tlsConfig": {name: value for name, value in secure.items() if value != ""}} if tls else {}),
        "httpTimeout": f"{Decimal(repr(extender.timeout)).normalize():f}s",
        "nodeCacheCapable": extender.node_cache_capable,
        "managedResources": [
            {"name": name, "ignoredByScheduler": ignored} for name, ignored in extender.managed_resources.items()
        ],
        "ignorable": extender.ignorable,
    }


def _parse_extender(raw: Any, path: str) -> ExtenderConfiguration:
    given = parse_fields(raw, path, _EXTENDER_FIELDS)
    url = parse_text(given.get("urlPrefix"), f"{path}.urlPrefix")
    scheme = _parse_scheme(url, f"{path}.urlPrefix")
    verbs = {verb: _parse_verb(given[name], f"{path}.{name}") for name, verb in _VERBS.items() if given.get(name, "") != ""}
    if not verbs:
        raise ConfigurationError(f"{path}: expected at least one of {', '.join(_VERBS)}")
    for name, verb in _VERBS.items():
        if scheme == "grpc" and verbs.get(verb, RPC_METHODS[verb]) != RPC_METHODS[verb]:
            raise ConfigurationError(
                f"{path}.{name}: expected {RPC_METHODS[verb]}, the name of the method of pinnace.v1.Extender"
            )
    enable_https = parse_bool(given.get("enableHTTPS", False), f"{path}.enableHTTPS")
    for name in ("enableHTTPS", "tlsConfig"):
        if scheme != "https" and given.get(name):
            raise ConfigurationError(f"{path}.{name}: requires a urlPrefix that begins with https://")
    return ExtenderConfiguration(
        url_prefix=url,
        verbs=verbs,
        weight=_parse_extender_weight(given.get("weight", 0), PRIORITIZE in verbs, f"{path}.weight"),
        enable_https=enable_https,
        tls=_parse_tls(given["tlsConfig"], f"{path}.tlsConfig") if "tlsConfig" in given else None,
        timeout=parse_duration(given["httpTimeout"], f"{path}.httpTimeout") if "httpTimeout" in given else HTTP_TIMEOUT,
        node_cache_capable=parse_bool(given.get("nodeCacheCapable", False), f"{path}.nodeCacheCapable"),
        managed_resources=_parse_managed_resources(given.get("managedResources", []), f"{path}.managedResources"),
        ignorable=parse_bool(given.get("ignorable", False), f"{path}.ignorable"),
    )


def _parse_verb(raw: Any, path: str) -> str:
    """Parse a verb, which is a segment of a URL path."""
    verb = parse_text(raw, path)
    if not _is_url_segment(verb):
        raise ConfigurationError(f"{path}: expected a segment of a URL path, got {verb}")
    return verb


def _is_url_segment(raw: str) -> bool:
    return raw.isascii() and raw.isprintable() and " " not in raw


def _parse_scheme(url: str, path: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
        complete = parts.scheme in ("http", "https", "grpc") and parts.hostname and not (parts.query or parts.fragment)
        (parts.hostname or "").encode("idna")  # as in DNS lookups; rejects empty and overlong labels
        if not _is_url_segment(url) or not complete or (parts.scheme == "grpc" and (port is None or parts.path.strip("/"))):
            raise ValueError
    except ValueError:
        raise ConfigurationError(f"{path}: expected http://, https:// or grpc://host:port, got {url}") from None
    return parts.scheme


def _parse_extender_weight(raw: Any, needed: bool, path: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < 0:
        raise ConfigurationError(f"{path}: expected an integer of 0 or more")
    if needed and not raw:
        raise ConfigurationError(f"{path}: must have a positive weight applied to it")
    return raw


def _parse_tls(raw: Any, path: str) -> ExtenderTls:
    given = parse_fields(raw, path, _TLS_FIELDS)
    files = {name: parse_text(given[name], f"{path}.{name}") if name in given else "" for name in _TLS_FIELDS[1:]}
    if files["keyFile"] and not files["certFile"]:
        raise ConfigurationError(f"{path}.keyFile: requires certFile")
    return ExtenderTls(
        parse_bool(given.get("insecure", False), f"{path}.insecure"), files["caFile"], files["certFile"], files["keyFile"]
    )


def _parse_managed_resources(raw: Any, path: str) -> dict[str, bool]:
    result: dict[str, bool] = {}
    for index, item in enumerate(parse_list(raw, path)):
        where = f"{path}[{index}]"
        given = parse_fields(item, where, ("name", "ignoredByScheduler"))
        name = parse_text(given.get("name"), f"{where}.name")
        if problems := _check_extended_resource(name):
            raise ConfigurationError(f"{where}.name: {problems[0]}")
        if name in result:
            raise ConfigurationError(f"{where}.name: duplicate extender managed resource name {name}")
        result[name] = parse_bool(given.get("ignoredByScheduler", False), f"{where}.ignoredByScheduler")
    return result


def _check_extended_resource(name: str) -> Sequence[str]:
    """Return the problems of the name of an extended resource."""
    if problems := names.label_key(name):
        return problems
    return () if names.is_extended_resource(name) else (f"{name} is an invalid extended resource name",)


def read_configuration(file: Path, *, seed: int = 0) -> Configuration:
    """Read a configuration file, whose relative paths begin at its folder. Raise ConfigurationError if it is invalid."""
    try:
        return parse_configuration(file.read_text(), file.parent, seed=seed)
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError("expected a text in UTF-8") from None


def parse_configuration(document: str, folder: Path = Path(), *, seed: int = 0) -> Configuration:
    """Parse the text of a configuration file in `folder`. Raise ConfigurationError if it is invalid."""
    try:
        result = documents.load_plain_documents(document)
    except documents.DocumentError as error:
        raise ConfigurationError(f"line {error.line}: {error}") from None
    if len(result) > 1:
        raise ConfigurationError(f"expected one document, got {len(result)}")
    top = parse_fields(_with_paths(result[0], folder) if result else None, "", _FIELDS)
    if (top.get("apiVersion"), top.get("kind")) != (API_VERSION, KIND):
        raise ConfigurationError(f"expected apiVersion {API_VERSION} and kind {KIND}")
    election = parse_fields(top.get("leaderElection", {}), "leaderElection", ("resourceName",))
    raw_profiles = parse_list(top.get("profiles", []), "profiles") or [{}]
    nameless = wellknown.DEFAULT_SCHEDULER if len(raw_profiles) == 1 else None
    profiles = tuple(_parse_profile(raw, f"profiles[{index}]", nameless) for index, raw in enumerate(raw_profiles))
    names = [profile.scheduler_name for profile in profiles]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigurationError(f"profiles[{index}].schedulerName: duplicate schedulerName {name}")
    default = Configuration()
    initial = parse_seconds(top.get("podInitialBackoffSeconds", default.initial_backoff), "podInitialBackoffSeconds")
    longest = parse_seconds(top.get("podMaxBackoffSeconds", default.max_backoff), "podMaxBackoffSeconds")
    if longest < initial:
        raise ConfigurationError(
            f"podMaxBackoffSeconds: must be at least podInitialBackoffSeconds ({initial:g}), got {longest:g}"
        )
    return Configuration(
        election=parse_text(election.get("resourceName", default.election), "leaderElection.resourceName"),
        initial_backoff=initial,
        max_backoff=longest,
        profiles=profiles,
        extenders=parse_extenders(top.get("extenders", []), "extenders"),
        seed=seed,
    )


def _with_paths(raw: Any, folder: Path, key: str = "") -> Any:
    """Return the document with `folder` before the relative paths of plugins and certificates."""
    if isinstance(raw, dict):
        return {name: _with_paths(value, folder, str(name)) for name, value in raw.items()}
    if isinstance(raw, list):
        return [_with_paths(item, folder, key) for item in raw]
    is_path = isinstance(raw, str) and (key in _TLS_FIELDS[1:] if ".py:" not in raw else key == "name")
    return str(folder / raw) if is_path and raw else raw


def with_plugin(configuration: Configuration, spec: str) -> Configuration:
    """Enable another plugin at all its extension points, in all profiles. Raise ConfigurationError if it is invalid."""
    return replace(configuration, profiles=tuple(_add_plugin(profile, spec) for profile in configuration.profiles))


def _add_plugin(profile: ProfileConfiguration, spec: str) -> ProfileConfiguration:
    sources = dict(profile.sources)
    name, added = parse_source(spec, "--plugin", sources)
    if name in profile.plugins:
        raise ConfigurationError(f"--plugin: {name} is enabled twice")
    require_extension_point(name, added, "--plugin")
    points = {point: [*old, name] if implements_point(added.plugin, point) else old for point, old in profile.points.items()}
    weights = dict(profile.weights) | ({name: NO_WEIGHT_GIVEN} if name in points[Point.SCORE] else {})
    return replace(profile, points=points, weights=weights, sources=sources)


def _parse_profile(raw: Any, path: str, nameless: str | None) -> ProfileConfiguration:
    """Parse one profile. `nameless` is the default of schedulerName; None makes the field required."""
    profile = parse_fields(raw, path, ("schedulerName", "plugins", "pluginConfig"))
    sources = built_in()
    resolved = resolve_plugins(profile.get("plugins", {}), f"{path}.plugins", sources)
    return ProfileConfiguration(
        scheduler_name=parse_text(profile.get("schedulerName", nameless), f"{path}.schedulerName"),
        points=resolved.points,
        weights=resolved.weights,
        args=_parse_args(profile.get("pluginConfig", []), f"{path}.pluginConfig", sources),
        sources=sources,
    )


def _parse_args(raw: Any, path: str, sources: dict[str, PluginSource]) -> dict[str, Mapping[str, Any]]:
    result: dict[str, Mapping[str, Any]] = {}
    for index, item in enumerate(parse_list(raw, path)):
        where = f"{path}[{index}]"
        entry = parse_fields(item, where, ("name", "args"))
        name, _ = parse_source(parse_text(entry.get("name"), f"{where}.name"), f"{where}.name", sources)
        args = entry.get("args", {})
        if not isinstance(args, dict):
            raise ConfigurationError(f"{where}.args: expected an object")
        if name in result:
            raise ConfigurationError(f"{where}.name: {name} is configured twice")
        for key, expected in (("apiVersion", API_VERSION), ("kind", f"{name}Args")):
            if args.get(key) not in (None, expected):
                raise ConfigurationError(f"{where}.args.{key}: expected {expected}")
        result[name] = {key: value for key, value in args.items() if value is not None and key not in ("apiVersion", "kind")}
    return result


def write_configuration(configuration: Configuration) -> str:
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "leaderElection": {"resourceName": configuration.election},
        "podInitialBackoffSeconds": _shorten_number(configuration.initial_backoff),
        "podMaxBackoffSeconds": _shorten_number(configuration.max_backoff),
        "profiles": [_write_profile(profile) for profile in configuration.profiles],
        "extenders": [write_extender(extender) for extender in configuration.extenders],
    }
    return yaml.safe_dump(document, sort_keys=False)


def configuration_digest(configuration: Configuration) -> str:
    """Return a digest of everything that affects decisions: profiles, arguments, extenders, and the content of plugin files.

    The paths of the plugin files, the election, the backoffs and the seed are not included. The result is empty if a plugin's
    `complete` fails.
    """
    try:
        profiles = [_write_profile(_name_plugins_by_content(profile)) for profile in configuration.profiles]
        extenders = [write_extender(extender) for extender in configuration.extenders]
        text = json.dumps([profiles, extenders], sort_keys=True, default=str)
    except Exception as error:  # `complete` is user code
        log.warning("cannot compute the digest of the configuration: %s: %s", type(error).__name__, error)
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


def _name_plugins_by_content(profile: ProfileConfiguration) -> ProfileConfiguration:
    """Return the profile with out-of-tree plugins named by the digest of their files."""
    sources = {
        name: PluginSource(f"{name}@{_content_digest(source.spec, source.plugin)}", source.plugin)
        if ":" in source.spec
        else source
        for name, source in profile.sources.items()
    }
    return replace(profile, sources=sources)


@cache
def _content_digest(spec: str, plugin: type[Plugin]) -> str:
    """Return the digest of the file that defines the class. It is cached, because the loaded class does not follow the file."""
    where = spec.rpartition(":")[0]
    file = where if where.endswith(".py") else getattr(sys.modules.get(where), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


def _write_profile(profile: ProfileConfiguration) -> Mapping[str, Any]:
    """Return the profile with the plugins of every extension point listed explicitly. `multiPoint` is disabled."""
    plugins: dict[str, Any] = {MULTI_POINT: {"disabled": [{"name": EVERYTHING}]}}
    for point, enabled in profile.points.items():
        if enabled:
            plugins[point.value] = {"enabled": [_plugin_entry(profile, point, name) for name in enabled]}
    return {
        "schedulerName": profile.scheduler_name,
        "plugins": plugins,
        "pluginConfig": [
            {"name": profile.sources[name].spec, "args": args}
            for name in profile.plugins
            if (args := _write_args(profile, name))
        ],
    }


def _plugin_entry(profile: ProfileConfiguration, point: Point, name: str) -> Mapping[str, Any]:
    entry: dict[str, Any] = {"name": profile.sources[name].spec}
    if point is Point.SCORE:
        entry["weight"] = _shorten_number(profile.weights[name])
    return entry


def _write_args(profile: ProfileConfiguration, name: str) -> Mapping[str, Any]:
    """Return the given arguments, completed with the plugin's defaults if it implements `complete`."""
    given = dict(profile.args.get(name, {}))
    plugin = profile.sources[name].plugin
    return plugin.complete(given) if isinstance(plugin, CompletesArgs) else given


def _shorten_number(value: float) -> float | int:
    return int(value) if value == int(value) else value
