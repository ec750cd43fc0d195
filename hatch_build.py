"""What a wheel and an sdist have besides the sources: the commit that they were made from (pinnace/runtime/build.py).

Where git does not say it, as in an image that is built without .git, PINNACE_COMMIT may.
"""

import os
import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]  # generic only in newer versions of hatchling
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build = runpy.run_path(str(Path(self.root, "pinnace", "runtime", "build.py")))
        commit = build["build_commit"]() or os.environ.get("PINNACE_COMMIT", "")
        if version == "editable" or not commit or build["BAKED"].exists():
            return
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            file.write(f"{commit}\n")
        self._file = Path(file.name)
        build_data["force_include"][file.name] = f"pinnace/runtime/{build['BAKED'].name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_file"):
            self._file.unlink()
