"""The former import name of the scheduler: plugins imported `scheduler`. It works for one more release.

The name belongs to whoever installs a package `scheduler`. Only if nobody has, it is an alias of `pinnace.scheduler`: both
names are the same modules, so classes are equal under both.
"""

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

log = logging.getLogger(__name__)

FORMER, PRESENT = "scheduler", "pinnace.scheduler"


class FormerNameFinder(MetaPathFinder, Loader):
    """Finds `scheduler` and its modules as those of `pinnace.scheduler`."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname == FORMER and is_free():
            log.warning(
                'a plugin imports "%s", a name that the next release does not have: import "%s" instead', FORMER, PRESENT
            )
            return ModuleSpec(fullname, self)
        if fullname.startswith(f"{FORMER}.") and sys.modules.get(FORMER) is import_module(PRESENT):
            return ModuleSpec(fullname, self)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(f"pinnace.{spec.name}")
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module, which has been executed, its own spec back: importlib has replaced it with the alias'."""
        if module.__spec__ is not None:
            module.__spec__ = self._specs.pop(module.__spec__.name)


def is_free() -> bool:
    """Return whether no other package has the name. In a checkout, the scheduler's own folder does."""
    spec = PathFinder.find_spec(FORMER)
    own = Path(str(import_module(PRESENT).__file__))
    return spec is None or (spec.origin is not None and Path(spec.origin).samefile(own))


def permit_former_name() -> None:
    """Let the plugins that are loaded from now on use the former name."""
    if not any(isinstance(finder, FormerNameFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerNameFinder())
