"""From a configuration to frameworks with plugins that work."""

from collections.abc import Mapping
from typing import Any

from pinnace.api.resources import Resource
from scheduler.config.fields import ConfigurationError
from scheduler.config.model import Configuration, ProfileConfiguration
from scheduler.framework import Handle
from scheduler.framework.handle import Offline
from scheduler.framework.loader import PluginLoadError, make
from scheduler.framework.points import Point
from scheduler.framework.profile import Enabled
from scheduler.framework.runtime import Framework
from scheduler.plugins import DEFAULTS


def build(configuration: Configuration, handle: Handle) -> dict[str, Framework]:
    """By scheduler name. Raises ConfigurationError when a plugin cannot be made, or the plugins together are no profile."""
    first, *others = configuration.profiles
    for profile in others:
        if _sorting(profile) != _sorting(first):
            raise ConfigurationError(f"queueSort must be the same in {first.scheduler_name} and {profile.scheduler_name}")
    return {profile.scheduler_name: _framework(profile, handle) for profile in configuration.profiles}


def check(configuration: Configuration) -> Configuration:
    """Raises ConfigurationError when the configuration cannot be built."""
    build(configuration, Offline())
    return configuration


def needs(configuration: Configuration) -> list[Resource[Any]]:
    """The resources of which some plugin needs the objects."""
    return _stated("needs", configuration)


def writes(configuration: Configuration) -> list[Resource[Any]]:
    """The resources of which some plugin writes objects."""
    return _stated("writes", configuration)


def default_plugins() -> list[Enabled]:
    """The built-in plugins, with their usual weights."""
    handle = Offline()
    return [Enabled(make(plugin, name, {}, handle), weight) for name, (plugin, weight) in DEFAULTS.items()]


def _stated(attribute: str, configuration: Configuration) -> list[Resource[Any]]:
    classes = [profile.sources[name].plugin for profile in configuration.profiles for name in profile.plugins]
    return list(dict.fromkeys(resource for plugin in classes for resource in getattr(plugin, attribute, ())))


def _framework(profile: ProfileConfiguration, handle: Handle) -> Framework:
    try:
        plugins = {
            name: make(profile.sources[name].plugin, profile.sources[name].spec, profile.args.get(name, {}), handle)
            for name in profile.plugins
        }
        return Framework(
            profile.scheduler_name,
            {
                point: [Enabled(plugins[name], profile.weights[name] if point is Point.SCORE else 0.0) for name in names]
                for point, names in profile.points.items()
            },
        )
    except (PluginLoadError, ValueError) as error:
        raise ConfigurationError(f"profile {profile.scheduler_name}: {error}") from error


def _sorting(profile: ProfileConfiguration) -> list[tuple[str, Mapping[str, Any]]]:
    names = profile.points[Point.QUEUE_SORT]
    return [(profile.sources[name].spec, profile.args.get(name, {})) for name in names]
