"""From the text of a configuration to what it says."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pinnace.api import defaults, documents
from pinnace.runtime.configuration import ConfigurationError, fields, items, seconds, text
from scheduler.config.extenders import parse_extenders
from scheduler.config.model import Configuration, ProfileConfiguration, Source, built_in
from scheduler.config.plugins import NO_WEIGHT_GIVEN, demand_part, resolve, source
from scheduler.framework.points import Point, takes_part

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


def parse(document: str, *, seed: int = 0) -> Configuration:
    """Raises ConfigurationError."""
    try:
        found = documents.plain(document)
    except documents.DocumentError as error:
        raise ConfigurationError(f"line {error.line}: {error}") from None
    if len(found) > 1:
        raise ConfigurationError(f"expected one document, got {len(found)}")
    top = fields(found[0] if found else None, "", _FIELDS)
    if (top.get("apiVersion"), top.get("kind")) != (API_VERSION, KIND):
        raise ConfigurationError(f"expected apiVersion {API_VERSION} and kind {KIND}")
    election = fields(top.get("leaderElection", {}), "leaderElection", ("resourceName",))
    raw_profiles = items(top.get("profiles", []), "profiles") or [{}]
    nameless = defaults.SCHEDULER if len(raw_profiles) == 1 else None
    profiles = tuple(_profile(raw, f"profiles[{index}]", nameless) for index, raw in enumerate(raw_profiles))
    names = [profile.scheduler_name for profile in profiles]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigurationError(f"profiles[{index}].schedulerName: {name} has a profile already")
    default = Configuration()
    initial = seconds(top.get("podInitialBackoffSeconds", default.initial_backoff), "podInitialBackoffSeconds")
    longest = seconds(top.get("podMaxBackoffSeconds", default.max_backoff), "podMaxBackoffSeconds")
    if longest < initial:
        raise ConfigurationError(
            f"podMaxBackoffSeconds: expected podInitialBackoffSeconds ({initial:g}) at least, got {longest:g}"
        )
    return Configuration(
        election=text(election.get("resourceName", default.election), "leaderElection.resourceName"),
        initial_backoff=initial,
        max_backoff=longest,
        profiles=profiles,
        extenders=parse_extenders(top.get("extenders", []), "extenders"),
        seed=seed,
    )


def with_plugin(configuration: Configuration, spec: str) -> Configuration:
    """Enables one more plugin at all its points, in all profiles. Raises ConfigurationError."""
    return replace(configuration, profiles=tuple(_and(profile, spec) for profile in configuration.profiles))


def _and(profile: ProfileConfiguration, spec: str) -> ProfileConfiguration:
    sources = dict(profile.sources)
    name, added = source(spec, "--plugin", sources)
    if name in profile.plugins:
        raise ConfigurationError(f"--plugin: {name} is enabled twice")
    demand_part(name, added, "--plugin")
    points = {point: [*names, name] if takes_part(added.plugin, point) else names for point, names in profile.points.items()}
    weights = dict(profile.weights) | ({name: NO_WEIGHT_GIVEN} if name in points[Point.SCORE] else {})
    return replace(profile, points=points, weights=weights, sources=sources)


def _profile(raw: Any, path: str, nameless: str | None) -> ProfileConfiguration:
    """`nameless`: what it is called without a name; None: it must have one."""
    profile = fields(raw, path, ("schedulerName", "plugins", "pluginConfig"))
    sources = built_in()
    resolved = resolve(profile.get("plugins", {}), f"{path}.plugins", sources)
    return ProfileConfiguration(
        scheduler_name=text(profile.get("schedulerName", nameless), f"{path}.schedulerName"),
        points=resolved.points,
        weights=resolved.weights,
        args=_args(profile.get("pluginConfig", []), f"{path}.pluginConfig", sources),
        sources=sources,
    )


def _args(raw: Any, path: str, sources: dict[str, Source]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for index, item in enumerate(items(raw, path)):
        where = f"{path}[{index}]"
        entry = fields(item, where, ("name", "args"))
        name, _ = source(text(entry.get("name"), f"{where}.name"), f"{where}.name", sources)
        args = entry.get("args", {})
        if not isinstance(args, dict):
            raise ConfigurationError(f"{where}.args: expected fields")
        if name in found:
            raise ConfigurationError(f"{where}.name: {name} is configured twice")
        for field, expected in (("apiVersion", API_VERSION), ("kind", f"{name}Args")):
            if args.get(field) not in (None, expected):
                raise ConfigurationError(f"{where}.args.{field}: expected {expected}")
        found[name] = {
            field: value for field, value in args.items() if value is not None and field not in ("apiVersion", "kind")
        }
    return found
