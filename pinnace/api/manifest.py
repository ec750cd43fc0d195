"""Reads manifests: YAML or JSON text as API objects. All problems are reported at once, by file and line.

    pods.yaml:14: spec.tolerations[0].efect: unknown field; did you mean "effect"?

A text contains any number of documents. A document is one object, or a list of objects: `kind: List`, or a list of one kind
such as `kind: PodList`, whose items may omit their kind. Lists can be nested.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pinnace.api.codec import FieldPath, as_written, readable
from pinnace.api.documents import Document, DocumentError, line_of, parse
from pinnace.api.resources import ALL, Object, Resource, absent, by_kind


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object, with its position in the source."""

    resource: Resource[Any]
    obj: Object
    written: Mapping[str, Any]
    """The fields that the manifest contains (codec.as_written). The object itself does not show which zeros were written."""
    source: str
    line: int
    warnings: tuple[str, ...] = ()
    """Messages about unknown fields that were left out, with file and line."""


class ManifestError(ValueError):
    """The text is not a valid manifest. `problems`: one line per problem, "source:line: message"."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


Validate: TypeAlias = Literal["strict", "warn", "ignore", "name"]


def load(text: str, source: str, *, validate: Validate = "strict", named: bool = False) -> list[Manifest]:
    """The objects of a text, in its order. `validate`: "strict" refuses unknown fields; "warn" and "ignore" leave them out;
    "name" reads only the kind, namespace and name. `named`: metadata.name is required, and generateName is not sufficient.

    Unknown fields of a status are always left out, because the server resets the status. A manifest that was exported from
    another cluster can therefore be applied (kubernetes#90066).

    Raises ManifestError. The values of fields are validated by the server, not here.
    """
    loader = _Loader(source, validate, named)
    try:
        for document in parse(text):
            loader.document(document)
    except DocumentError as error:
        loader.problem(error.line, str(error))
    if loader.problems:
        raise ManifestError(
            f"{source}:{line}: {message}" for line, message in sorted(loader.problems, key=lambda each: each[0])
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
        for path, data in _objects(document.data, ()):
            line = line_of(document.data, path, document.line)
            try:
                resource = _resource(data)
                data = _naming(data) if self._validate == "name" else data
                obj, problems = readable(resource, data, path)
            except _UnknownKind as error:
                where = line_of(document.data, (*path, error.field), document.line)
                self.problem(where, str(error))
                continue
            left_out = [each for each in problems if each.unknown and self._is_left_out(each.path[len(path) :])]
            if refused := [each for each in problems if each not in left_out]:
                for problem in refused:
                    self.problem(line_of(document.data, problem.path, document.line), str(problem))
                continue
            warned = tuple(
                f'{self._source}:{line_of(document.data, each.path, document.line)}: unknown field "{each.field}"'
                for each in left_out
                if self._validate == "warn" and each.path[len(path)] != "status"
            )
            if unnamed := _unnamed(obj, self._named):
                self.problem(line_of(document.data, (*path, "metadata"), document.line), f"metadata.name: {unnamed}")
            self.manifests.append(Manifest(resource, obj, as_written(obj, data), self._source, line, warned))

    def _is_left_out(self, path: FieldPath) -> bool:
        """Whether an unknown field is left out instead of refused. `path` is relative to the object."""
        return self._validate != "strict" or path[0] == "status"


def _unnamed(obj: Object, named: bool) -> str:
    """The error message for a missing name; "" when the object has one."""
    if obj.metadata.name:
        return ""
    if named:
        return "required; `pinnace create` makes objects with generateName" if obj.metadata.generateName else "required"
    return "" if obj.metadata.generateName else "required, or metadata.generateName"


def _naming(data: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the data that identifies the object: apiVersion, kind, and the names in the metadata."""
    kept = {name: data[name] for name in ("apiVersion", "kind", "metadata") if name in data}
    if isinstance(metadata := kept.get("metadata"), Mapping):
        kept["metadata"] = {name: metadata[name] for name in ("name", "namespace", "generateName") if name in metadata}
    return kept


class _UnknownKind(ValueError):
    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _objects(data: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    """The objects of a document, each with its path. Lists, and lists within lists, are flattened."""
    if not _is_list(data):
        yield path, data
        return
    for index, item in enumerate(data["items"] or ()):
        yield from _objects(_as_of(data, item), (*path, "items", index))


def _is_list(data: Any) -> bool:
    if not isinstance(data, Mapping) or "items" not in data or not isinstance(data["items"], list | None):
        return False
    kind = data.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and (kind == "List" or kind.removesuffix("List") in _KINDS)


def _as_of(whole: Mapping[str, Any], item: Any) -> Any:
    """The item of a list, with the kind and apiVersion of a list of one kind if it has none of its own."""
    kind = whole["kind"].removesuffix("List")
    if not isinstance(item, Mapping) or "kind" in item or kind not in _KINDS:
        return item
    return {"kind": kind, **({"apiVersion": whole["apiVersion"]} if "apiVersion" in whole else {}), **item}


_KINDS = {resource.kind: resource for resource in ALL}


def _resource(data: Any) -> Resource[Any]:
    """The resource that the kind and apiVersion of a document name. Raises _UnknownKind."""
    if not isinstance(data, Mapping):
        raise _UnknownKind("", "not an object: a document begins with apiVersion and kind")
    kind, version = data.get("kind"), data.get("apiVersion")
    if not isinstance(kind, str):
        raise _UnknownKind("kind", f"kind: required; supported: {', '.join(_KINDS)}")
    if (lacking := absent(kind)) is not None:
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
