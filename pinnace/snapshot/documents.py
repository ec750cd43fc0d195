"""The file of a snapshot: manifests, one for each object. JSON with one object a line, or YAML if the name ends in .yaml or
.yml.

Both are streams that `kubectl apply -f` accepts, and a stream of others, such as that of `kwokctl snapshot export`, can be
read. A file is complete or absent: it is written under another name first. Only its owner can read it, because it can have
Secrets.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import yaml

from pinnace.snapshot.api import Object

YAML = (".yaml", ".yml")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class SnapshotError(Exception):
    """A snapshot cannot be read, written or restored. The message says why; each of `details` is one object."""

    def __init__(self, message: str, details: list[str] | None = None) -> None:
        super().__init__(message)
        self.details = details or []


@contextmanager
def writing(file: Path, *, overwrite: bool = False) -> Iterator[Callable[[Object], None]]:
    """Yield a function that writes an object. The file exists when the block ends without an error. Raises SnapshotError."""
    if file.exists() and not overwrite:
        raise SnapshotError(f"{file} already exists")
    part = file.with_name(f".{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            yield _writer(stream, file.suffix in YAML)
        part.replace(file)
    except OSError as error:
        raise SnapshotError(f"{file}: cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def _writer(stream: IO[str], is_yaml: bool) -> Callable[[Object], None]:
    def write(thing: Object) -> None:
        if is_yaml:
            stream.write("---\n")
            yaml.dump(thing, stream, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
        else:
            stream.write(json.dumps(thing, ensure_ascii=False, separators=(",", ":")) + "\n")

    return write


def read_objects(file: Path) -> list[Object]:
    """Return the objects of a snapshot. Raises SnapshotError with the file, and the line or number of the document."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise SnapshotError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SnapshotError(f"{file}: expected a text in UTF-8") from None
    documents = _read_yaml(file, text) if file.suffix in YAML else _read_json(file, text)
    objects = []
    for where, document in documents:
        for item in document["items"] if _is_list(document) else [document]:
            metadata = item.get("metadata") if isinstance(item, dict) else None
            if not isinstance(metadata, dict) or not all(isinstance(item.get(key), str) for key in ("apiVersion", "kind")):
                raise SnapshotError(f"{where}: expected an object with apiVersion, kind and metadata")
            if not isinstance(metadata.get("name"), str) or not metadata["name"]:
                raise SnapshotError(f"{where}: metadata.name: expected a name")
            objects.append(item)
    if not objects:
        raise SnapshotError(f"{file}: has no objects")
    return objects


def _is_list(document: object) -> bool:
    return (
        isinstance(document, dict)
        and str(document.get("kind", "")).endswith("List")
        and isinstance(document.get("items"), list)
    )


def _read_json(file: Path, text: str) -> Iterator[tuple[str, Object]]:
    decoder, at = json.JSONDecoder(), 0
    while (at := _skip_space(text, at)) < len(text):
        where = f"{file}:{text.count(chr(10), 0, at) + 1}" if at < 1 << 16 else str(file)
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", 0)
            raise SnapshotError(f"{file}:{line}: expected JSON: {getattr(error, 'msg', error)}") from None
        yield where, document


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _read_yaml(file: Path, text: str) -> Iterator[tuple[str, Object]]:
    try:
        for number, document in enumerate(yaml.load_all(text, Loader=_LOADER), 1):
            if document is not None:
                yield f"{file}: document {number}", document
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise SnapshotError(f"{file}{line}: expected YAML: {getattr(error, 'problem', None) or error}") from None
