"""Plugins become instances: found by name or `module:Class` or `path/to/file.py:Class`, made, and checked, all at start."""

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from scheduler.framework import interface
from scheduler.framework.faults import is_built_in
from scheduler.framework.handle import Handle
from scheduler.framework.interface import Plugin
from scheduler.framework.points import METHODS
from scheduler.framework.shown import Shown


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
