"""JSONPaths of Kubernetes, as printer columns and selectable fields have them: `.spec.replicas`,
`.status.conditions[?(@.type=="Ready")].status`.

Supported: fields, quoted fields, indexes, slices, unions, wildcards, recursive descent and filters. Text is parsed in
linear time.

Source: https://kubernetes.io/docs/reference/kubectl/jsonpath/
"""

from typing import Any


class JSONPathError(ValueError):
    """The text is no JSONPath. The message is Kubernetes'."""


class JSONPath:
    def find(self, obj: Any) -> list[Any]:
        """Return the values at the path. Missing fields have none."""
        raise NotImplementedError


def compile_jsonpath(text: str) -> JSONPath:
    """Raise JSONPathError. `text`: as in a definition, without braces."""
    raise NotImplementedError
