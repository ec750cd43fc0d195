"""The files of `-f`: every manifest in them, or everything that is wrong with them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pinnace.api.manifest import Manifest, ManifestError, Validate, load
from pinnace.cli.outcomes import usage
from pinnace.cli.session import Session

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
MAX_OBJECT = 1 << 20
"""Bytes of an encoded object: what fits into one transaction of etcd."""


def read(
    filenames: Sequence[str], *, recursive: bool = False, validate: Validate = "strict", named: bool = False
) -> list[Manifest]:
    """In the order of the files; `validate` and `named` as in pinnace.api.manifest.load. Raises ManifestError with the
    problems of all files, and Failure for what cannot be read."""
    manifests: list[Manifest] = []
    problems: list[str] = []
    for source, text in _texts(filenames, recursive):
        try:
            found = load(text, source, validate=validate, named=named)
        except ManifestError as error:
            problems.extend(error.problems)
        else:
            manifests.extend(found)
            problems.extend(_too_large(found))
    if problems:
        raise ManifestError(problems)
    if not manifests:
        raise usage(f"no objects in {', '.join(filenames)}", hint="a manifest begins with apiVersion and kind")
    return manifests


def place(manifest: Manifest, session: Session) -> None:
    """Puts an object without a namespace into the session's. Raises ManifestError when `-n` and the manifest contradict."""
    meta = manifest.obj.metadata
    if not manifest.resource.namespaced:
        return
    if session.named_namespace not in (None, meta.namespace) and meta.namespace:
        message = f'metadata.namespace: "{meta.namespace}", but the command line says "{session.named_namespace}"'
        raise ManifestError([f"{where(manifest)}: {message}"])
    meta.namespace = meta.namespace or session.namespace


def place_all(manifests: Sequence[Manifest], session: Session) -> None:
    """Raises ManifestError."""
    for manifest in manifests:
        place(manifest, session)


def where(manifest: Manifest) -> str:
    return f"{manifest.source}:{manifest.line}"


def _texts(filenames: Sequence[str], recursive: bool) -> Iterator[tuple[str, str]]:
    for name in filenames:
        for source, read_all in _sources(name, recursive):
            try:
                yield source, read_all()
            except OSError as error:
                address = "://" in name
                hint = "fetch it yourself: `-f -` reads stdin" if address else "-f names a file, a directory, or - for stdin"
                raise usage(f"{name if address else source}: {(error.strerror or str(error)).lower()}", hint=hint) from None
            except UnicodeDecodeError as error:
                raise ManifestError([f"{source}:1: not a text in UTF-8: {error.reason} at byte {error.start}"]) from None


def _sources(name: str, recursive: bool) -> Sequence[tuple[str, Callable[[], str]]]:
    """What a name stands for, and how each is read."""
    if name == STDIN:
        return [("stdin", sys.stdin.read)]
    return [(str(path), partial(path.read_text, encoding="utf-8")) for path in _files(Path(name), recursive)]


def _files(path: Path, recursive: bool) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    all_ = (path.rglob if recursive else path.glob)("*")
    found = sorted(each for each in all_ if each.suffix in SUFFIXES and (each.is_file() or _leads_nowhere(each)))
    if not found:
        raise usage(f"{path}: no {', '.join(SUFFIXES)} files in this directory", hint="-R looks into its directories too")
    return found


def _leads_nowhere(path: Path) -> bool:
    """Such a link is an error once it is read: nobody has left it out on purpose."""
    return path.is_symlink() and not path.exists()


def _too_large(manifests: Sequence[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        size = manifest.obj.ByteSize()
        if size > MAX_OBJECT:
            yield f"{where(manifest)}: the object has {size:,} bytes; at most {MAX_OBJECT:,} are stored"
