"""What a kubeconfig consists of, and the errors about one. YAML is not imported: `--help` does not need it.

Source: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

from collections.abc import Mapping
from typing import Any, Literal

Kind = Literal["cluster", "user", "context"]
Document = dict[str, Any]
CURRENT = "current-context"
SKELETON = 'apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\ncurrent-context: ""\n'
"""The text of a new file without entries. A file with exactly this text was created by pinnace."""
MAX_SIZE = 3 << 20
"""The maximum size of a file in bytes, as in pinnace.api.documents."""
HINT = "start a local cluster with `pinnace up`, or name an API server with --server HOST:PORT"


class ConfigError(Exception):
    """The configuration is invalid or missing. `hint`: the remedy."""

    def __init__(self, message: str, hint: str = HINT) -> None:
        super().__init__(message)
        self.hint = hint


class KubeconfigSyntaxError(ValueError):
    """The text is not a kubeconfig. `line`: where, counted from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def list_entries(document: Mapping[str, Any], kind: Kind) -> list[Mapping[str, Any]]:
    """Return the entries of a kind. An entry has a `name`, and its value under the name of the kind."""
    return [entry for entry in document.get(f"{kind}s") or [] if isinstance(entry, dict)]
