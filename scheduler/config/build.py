"""From a configuration to frameworks with plugins that work."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pinnace.api.resources import Resource
from pinnace.runtime.configuration import ConfigurationError
from scheduler.config.model import Configuration, ProfileConfiguration
from scheduler.extenders.extenders import Extenders
from scheduler.framework import BindPlugin, Handle
from scheduler.framework.handle import Offline
from scheduler.framework.loader import PluginLoadError, make
from scheduler.framework.points import Point
from scheduler.framework.profile import Enabled
from scheduler.framework.runtime import Framework
from scheduler.plugins.node_resources_fit import NodeResourcesFit


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
