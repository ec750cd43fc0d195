"""Profiles: the names of the extension points, and how plugins are found, made and checked. All errors occur at start."""

import importlib.util
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from scheduler.framework import interface
from scheduler.framework.faults import is_built_in
from scheduler.framework.handle import Handle, Shown
from scheduler.framework.interface import BatchBindPlugin, Plugin


class Point(StrEnum):
    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"


METHODS: Mapping[Point, tuple[type, str]] = {
    Point.PRE_ENQUEUE: (interface.PreEnqueuePlugin, "pre_enqueue"),
    Point.QUEUE_SORT: (interface.QueueSortPlugin, "sort_key"),
    Point.PRE_FILTER: (interface.PreFilterPlugin, "pre_filter"),
    Point.FILTER: (interface.FilterPlugin, "filter"),
    Point.POST_FILTER: (interface.PostFilterPlugin, "post_filter"),
    Point.PRE_SCORE: (interface.PreScorePlugin, "pre_score"),
    Point.SCORE: (interface.ScorePlugin, "score"),
    Point.RESERVE: (interface.ReservePlugin, "reserve"),
    Point.PERMIT: (interface.PermitPlugin, "permit"),
    Point.PRE_BIND: (interface.PreBindPlugin, "pre_bind"),
    Point.BIND: (interface.BindPlugin, "bind"),
    Point.POST_BIND: (interface.PostBindPlugin, "post_bind"),
}
"""The method with which a plugin takes part in each point, and the Protocol that declares it."""

PREPARED_BY: Mapping[Point, Point] = {Point.FILTER: Point.PRE_FILTER, Point.SCORE: Point.PRE_SCORE}
"""A plugin that has both takes part in both, or in neither: the one leaves in the state what the other reads."""


def takes_part(plugin: object, point: Point) -> bool:
    """Of a plugin, or its class."""
    if point is Point.BIND and getattr(plugin, "in_batches", False):
        return True
    return hasattr(plugin, METHODS[point][1])


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


@dataclass(frozen=True, slots=True)
class _Shape:
    """Of a method, as a plugin is expected to have it."""

    parameters: Sequence[str]
    waits: bool

    @classmethod
    def of(cls, method: Callable[..., Any]) -> "_Shape":
        named = [parameter for parameter in inspect.signature(method).parameters if parameter != "self"]
        return cls(named, inspect.iscoroutinefunction(method))


_METHODS = {
    method: _Shape.of(getattr(protocol, method))
    for protocol, method in (
        *METHODS.values(),
        (interface.NormalizePlugin, "normalize"),
        (interface.EnqueueHint, "helps"),
        (interface.ReservePlugin, "unreserve"),
        (interface.PreFlightPlugin, "pre_flight"),
    )
}
_TOGETHER = ("reserve", "unreserve")


class PluginLoadError(Exception):
    """The plugin cannot be used; the message says what is wrong with it and where."""


def find(spec: str) -> type[Plugin]:
    """Imports a plugin's class. Raises PluginLoadError."""
    where, colon, class_name = spec.rpartition(":")
    if not colon or not where or not class_name.isidentifier():
        raise PluginLoadError(f'plugin "{spec}": expected module:Class or path/to/file.py:Class')
    try:
        module = _import_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may call sys.exit()
        raise PluginLoadError(f'plugin "{spec}": cannot import {where}: {type(error).__name__}: {error}') from error
    found = getattr(module, class_name, None)
    if not inspect.isclass(found):
        raise PluginLoadError(f'plugin "{spec}": {where} has no class {class_name}')
    name = getattr(found, "name", None)
    if not isinstance(name, str) or not name:
        raise PluginLoadError(f'plugin "{spec}": needs an attribute `name`, a string')
    return cast("type[Plugin]", found)


def make(plugin: type[Plugin], spec: str, args: Mapping[str, Any], handle: Handle) -> Plugin:
    """An instance, with those of the arguments that the constructor names, whose shape is right. Raises PluginLoadError."""
    wanted = inspect.signature(plugin).parameters
    offered: dict[str, Any] = {"args": args, "handle": handle if is_built_in(plugin) else Shown(handle, plugin)}
    if args and "args" not in wanted:
        raise PluginLoadError(f'plugin "{spec}": takes no args')
    try:
        made = plugin(**{name: value for name, value in offered.items() if name in wanted})
    except ValueError as error:
        raise PluginLoadError(f'plugin "{spec}": {error}') from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginLoadError(f'plugin "{spec}": {plugin.__name__}() failed: {type(error).__name__}: {error}') from error
    _check_shape(made, spec)
    return made


def _check_shape(plugin: Plugin, spec: str) -> None:
    present = [method for method in _METHODS if hasattr(plugin, method)]
    if not present and not isinstance(plugin, interface.BatchBindPlugin):
        raise PluginLoadError(f'plugin "{spec}": has none of the methods {", ".join(_METHODS)}')
    if len(half := [method for method in _TOGETHER if method in present]) == 1:
        raise PluginLoadError(f'plugin "{spec}": has {half[0]}, but {" and ".join(_TOGETHER)} belong together')
    for method in present:
        wanted, bound = _METHODS[method], getattr(plugin, method)
        try:
            inspect.signature(bound).bind(*wanted.parameters)
        except TypeError:
            raise PluginLoadError(f'plugin "{spec}": {method} must take ({", ".join(wanted.parameters)})') from None
        if wanted.waits is not inspect.iscoroutinefunction(bound):
            kind = "a coroutine" if wanted.waits else "an ordinary function"
            raise PluginLoadError(f'plugin "{spec}": {method} must be {kind}')


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
