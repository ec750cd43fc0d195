"""A reader for manifests: YAML or JSON text as API objects. All problems are reported together, by file and line.

    pods.yaml:14: spec.tolerations[0].efect: unknown field; did you mean "effect"?

A text contains any number of documents. A document is an object or a list of objects. A list is `kind: List`, or a list of one
kind such as `kind: PodList`, whose items can omit their kind. Lists can be nested.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pinnace.api.codec import FieldPath, decode_valid_part, explicit_fields
from pinnace.api.documents import Document, DocumentError, line_of, parse
from pinnace.api.resources import ALL, Object, Resource, by_kind, find_absent

Validate: TypeAlias = Literal["strict", "warn", "ignore", "name"]
_KINDS = {resource.kind: resource for resource in ALL}


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object with its position in the source."""

    resource: Resource[Any]
    obj: Object
    written: Mapping[str, Any]
    """The fields that the manifest contains (codec.as_written), including zeros that the object does not preserve."""
    source: str
    line: int
    warnings: tuple[str, ...] = ()
    """Messages about unknown fields that were ignored, with file and line."""


class ManifestError(ValueError):
    """The text is not a valid manifest. `problems`: one line per problem, "source:line: message"."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def load(text: str, source: str, *, validate: Validate = "strict", named: bool = False) -> list[Manifest]:
    """Parse the objects of a text in order. `validate`: "strict" rejects unknown fields; "warn" and "ignore" ignore them;
    "name" parses only the kind, namespace and name. `named`: metadata.name is required, and generateName is not sufficient.

    Unknown fields of a status are always ignored, because the server resets the status. A manifest that was exported from
    another cluster can therefore be applied (kubernetes#90066).

    Raises ManifestError. Field values are validated by the server.
    """
    loader = _Loader(source, validate, named)
    try:
        for document in parse(text):
            loader.document(document)
    except DocumentError as error:
        loader.problem(error.line, str(error))
    if loader.problems:
        raise ManifestError(
            f"{source}:{line}: {message}" for line, message in sorted(loader.problems, key=lambda problem: problem[0])
        )
    return loader.manifests


class _Loader:
    def __init__(self, source: str, validate: Validate, named: bool) -> None:
        self._source = source
        self._validate = validate
        self._named = named
        self.manifests: list[Manifest] = []
        self.problems: list[tuple[int, str]] = []

    def problem(self, line: int, message: str) -> None:
        self.problems.append((line, message))

    def document(self, document: Document) -> None:
        self.problems.extend(document.mistakes)
        for path, data in _flatten_lists(document.data, ()):
            line = line_of(document.data, path, document.line)
            try:
                resource = _find_resource(data)
                data = _naming_part(data) if self._validate == "name" else data
                obj, problems = decode_valid_part(resource, data, path)
            except _UnknownKind as error:
                where = line_of(document.data, (*path, error.field), document.line)
                self.problem(where, str(error))
                continue
            left_out = [item for item in problems if item.unknown and self._is_left_out(item.path[len(path) :])]
            if refused := [item for item in problems if item not in left_out]:
                for problem in refused:
                    self.problem(line_of(document.data, problem.path, document.line), str(problem))
                continue
            warned = tuple(
                f'{self._source}:{line_of(document.data, item.path, document.line)}: unknown field "{item.field}"'
                for item in left_out
                if self._validate == "warn" and item.path[len(path)] != "status"
            )
            if unnamed := _missing_name_error(obj, self._named):
                self.problem(line_of(document.data, (*path, "metadata"), document.line), f"metadata.name: {unnamed}")
            self.manifests.append(Manifest(resource, obj, explicit_fields(obj, data), self._source, line, warned))

    def _is_left_out(self, path: FieldPath) -> bool:
        """Return whether an unknown field is ignored instead of rejected. `path` is relative to the object."""
        return self._validate != "strict" or path[0] == "status"


def _missing_name_error(obj: Object, named: bool) -> str:
    """Return the error for a missing name, or "" if the object has a name."""
    if obj.metadata.name:
        return ""
    if named:
        return "required; use `pinnace create` for objects with generateName" if obj.metadata.generateName else "required"
    return "" if obj.metadata.generateName else "required, or metadata.generateName"


def _naming_part(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the data that identifies the object: apiVersion, kind, and the names in its metadata."""
    kept = {name: data[name] for name in ("apiVersion", "kind", "metadata") if name in data}
    if isinstance(metadata := kept.get("metadata"), Mapping):
        kept["metadata"] = {name: metadata[name] for name in ("name", "namespace", "generateName") if name in metadata}
    return kept


class _UnknownKind(ValueError):
    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _flatten_lists(data: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the objects of a document with their paths. Nested lists are flattened."""
    if not _is_list(data):
        yield path, data
        return
    for index, item in enumerate(data["items"] or ()):
        yield from _flatten_lists(_as_of(data, item), (*path, "items", index))


def _is_list(data: Any) -> bool:
    if not isinstance(data, Mapping) or "items" not in data or not isinstance(data["items"], list | None):
        return False
    kind = data.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and (kind == "List" or kind.removesuffix("List") in _KINDS)


def _as_of(whole: Mapping[str, Any], item: Any) -> Any:
    """Return the item of a list. An item without a kind gets the kind and apiVersion of its list."""
    kind = whole["kind"].removesuffix("List")
    if not isinstance(item, Mapping) or "kind" in item or kind not in _KINDS:
        return item
    return {"kind": kind, **({"apiVersion": whole["apiVersion"]} if "apiVersion" in whole else {}), **item}


def _find_resource(data: Any) -> Resource[Any]:
    """Return the resource for the kind and apiVersion of a document. Raises _UnknownKind."""
    if not isinstance(data, Mapping):
        raise _UnknownKind("", "not an object: expected apiVersion and kind")
    kind, version = data.get("kind"), data.get("apiVersion")
    if not isinstance(kind, str):
        raise _UnknownKind("kind", f"kind: required; supported: {', '.join(_KINDS)}")
    if (lacking := find_absent(kind)) is not None:
        raise _UnknownKind("kind", f"kind: {lacking}: {lacking.instead}")
    if kind not in _KINDS:
        close = difflib.get_close_matches(kind, _KINDS, n=1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        raise _UnknownKind("kind", f'kind: unknown kind "{kind}"{hint} (supported: {", ".join(_KINDS)})')
    expected = _KINDS[kind].api_version
    if not isinstance(version, str):
        raise _UnknownKind("apiVersion", f'apiVersion: required; the apiVersion of {kind} is "{expected}"')
    resource = by_kind(kind, version)
    if resource is None:
        raise _UnknownKind("apiVersion", f'apiVersion: "{version}" has no kind "{kind}"; expected "{expected}"')
    return resource
