"""User plugins: `module:Class`, or `path/to/file.py:Class`. Everything that can be checked is checked at start."""

import importlib
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

from scheduler.framework import interface
from scheduler.framework.interface import Plugin

_METHODS = {
    method: getattr(protocol, method)
    for protocol, method in (
        (interface.PreEnqueuePlugin, "pre_enqueue"),
        (interface.QueueSortPlugin, "sort_key"),
        (interface.PreFilterPlugin, "pre_filter"),
        (interface.FilterPlugin, "filter"),
        (interface.PreScorePlugin, "pre_score"),
        (interface.ScorePlugin, "score"),
        (interface.NormalizePlugin, "normalize"),
        (interface.EnqueueHint, "helps"),
    )
}


class PluginLoadError(Exception):
    """The plugin cannot be used; the message says what is wrong with it and where."""


def load(spec: str) -> Plugin:
    """Imports the class, makes an instance without arguments, and checks its shape. Raises PluginLoadError."""
    where, colon, class_name = spec.rpartition(":")
    if not colon or not where or not class_name.isidentifier():
        raise PluginLoadError(f'plugin "{spec}": expected module:Class or path/to/file.py:Class')
    try:
        module = _import_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except Exception as error:
        raise PluginLoadError(f'plugin "{spec}": cannot import {where}: {type(error).__name__}: {error}') from error
    found = getattr(module, class_name, None)
    if not inspect.isclass(found):
        raise PluginLoadError(f'plugin "{spec}": {where} has no class {class_name}')
    try:
        plugin = found()
    except Exception as error:
        raise PluginLoadError(f'plugin "{spec}": {class_name}() failed: {type(error).__name__}: {error}') from error
    return validate(plugin, spec)


def validate(plugin: Any, spec: str) -> Plugin:
    name = getattr(plugin, "name", None)
    if not isinstance(name, str) or not name:
        raise PluginLoadError(f'plugin "{spec}": needs an attribute `name`, a string')
    present = [method for method in _METHODS if hasattr(plugin, method)]
    if not present:
        raise PluginLoadError(f'plugin "{spec}": has none of the methods {", ".join(_METHODS)}')
    for method in present:
        wanted = [parameter for parameter in inspect.signature(_METHODS[method]).parameters if parameter != "self"]
        try:
            inspect.signature(getattr(plugin, method)).bind(*wanted)
        except TypeError:
            raise PluginLoadError(f'plugin "{spec}": {method} must take ({", ".join(wanted)})') from None
    checked: Plugin = plugin
    return checked


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
