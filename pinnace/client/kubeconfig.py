"""The client's configuration as a file, in the kubeconfig format: lists of clusters, users and contexts, which have names.

Whoever changes it takes turns with the others, and replaces the file as a whole: a reader sees the old one or the new one. What
is not known here is kept; comments are not.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from pinnace.runtime import filelock

Kind = Literal["cluster", "user", "context", "extension"]
Document = dict[str, Any]
HINT = "start a local cluster with `pinnace up`, or name an API server with --server HOST:PORT"


class ConfigError(Exception):
    """The configuration cannot be used; `hint` says what to do about it."""

    def __init__(self, message: str, hint: str = HINT) -> None:
        super().__init__(message)
        self.hint = hint


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The file that is read and written: $PINNACE_CONFIG, or the user's."""
    if named := environ.get("PINNACE_CONFIG"):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "pinnace" / "config"


def read(path: Path) -> Document:
    """Raises ConfigError, also when there is no file."""
    document = found(path)
    if document is None:
        raise ConfigError(f"no cluster to talk to: {path} does not exist")
    return document


def found(path: Path) -> Document | None:
    """None: there is no file. Raises ConfigError when it is no configuration."""
    from pinnace.api import documents  # 20 ms, which whoever only asks for help does not wait for

    try:
        with path.open(encoding="utf-8") as file:
            read = documents.plain(file.read(documents.MAX_SIZE + 1))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder", "name a file with PINNACE_CONFIG") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", f"repair or remove {path}") from None
    except documents.DocumentError as error:
        raise ConfigError(f"{path}:{error.line}: {error}", f"repair or remove {path}") from None
    document = read[0] if len(read) == 1 else None
    if not isinstance(document, dict) or document.get("kind") != "Config":
        raise ConfigError(f"{path}: not a client configuration (kind: Config)", f"repair or remove {path}")
    return document


def entries(document: Mapping[str, Any], kind: Kind) -> Sequence[Mapping[str, Any]]:
    """All of a kind, each with its name, and its value by the kind's name."""
    return [each for each in document.get(f"{kind}s") or [] if isinstance(each, dict)]


def names(document: Mapping[str, Any], kind: Kind) -> list[str]:
    return [str(each.get("name")) for each in entries(document, kind)]


def entry(document: Mapping[str, Any], kind: Kind, name: str, path: Path) -> Mapping[str, Any]:
    """The one of that name. Raises ConfigError, which names those that there are."""
    for each in entries(document, kind):
        if each.get("name") == name and isinstance(each.get(kind), dict):
            value: Mapping[str, Any] = each[kind]
            return value
    known = ", ".join(names(document, kind))
    hint = f"name one of those, or add it to {path}" if known else HINT
    raise ConfigError(f'{path}: there is no {kind} "{name}" (known: {known or "none"})', hint)


def put(document: Document, kind: Kind, name: str, value: Mapping[str, Any]) -> None:
    """Adds one, or replaces the one of that name where it stands."""
    new: dict[str, Any] = {kind: dict(value)}
    items = [{**each, **new} if each.get("name") == name else each for each in entries(document, kind)]
    document[f"{kind}s"] = items if name in names(document, kind) else [*items, {"name": name, **new}]


def drop(document: Document, kind: Kind, names: Sequence[str]) -> None:
    """What is not there is no error."""
    document[f"{kind}s"] = [each for each in entries(document, kind) if each.get("name") not in names]


@contextmanager
def changing(path: Path) -> Iterator[Document]:
    """The document, which is written when the block ends without an error; without the file, a new one. When nothing is left in
    it the file is removed. A link stays one. Makes its folder. Raises ConfigError and OSError."""
    path = path.resolve()
    with filelock.locked(path.with_name(f"{path.name}.lock")):
        before = found(path)
        document = dict(before or {"apiVersion": "v1", "kind": "Config"})
        yield document
        if not any(value for key, value in document.items() if key not in ("apiVersion", "kind")):
            path.unlink(missing_ok=True)
        elif document != before:
            _write(path, document)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    import tempfile  # few write one

    import yaml

    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(dict(document), file, sort_keys=False)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink(missing_ok=True)
        raise
