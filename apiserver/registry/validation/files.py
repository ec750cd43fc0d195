"""The files that a volume shows: keys of secrets and config maps, fields of the pod, tokens; of one kind, or of several."""

from collections.abc import Iterable, Sequence
from typing import Any

from apiserver.registry.validation.environment import validate_amount_selector, validate_field_selector
from apiserver.registry.validation.violations import between, forbidden, invalid, required
from pinnace.api.core_v1_pb2 import DownwardAPIVolumeFile, KeyToPath, ServiceAccountTokenProjection, VolumeProjection
from pinnace.api.status import Violation

MAX_MODE = 0o777
MIN_TOKEN_SECONDS, MAX_TOKEN_SECONDS = 600, 2**32
_POD_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")


def validate_files(kind: str, source: Any, path: str, out: list[Violation]) -> None:
    """Of a volume's source: a secret, configMap, downwardAPI or projected, after defaults."""
    _validate_mode(source.defaultMode, f"{path}.defaultMode", out)
    if kind == "projected":
        _validate_projected(source.sources, f"{path}.sources", out)
    else:
        _validate_items(source.items, f"{path}.items", out)


def _validate_projected(sources: Sequence[VolumeProjection], path: str, out: list[Violation]) -> None:
    """No two of them show a file at one place, as far as they say where."""
    taken: set[str] = set()
    for index, projection in enumerate(sources):
        given = [field.name for field, _ in projection.ListFields()]
        detail = "may not specify more than 1 volume type per source"
        out.extend(forbidden(f"{path}[{index}].{kind}", detail) for kind in given[1:])
        for kind in given[:1]:
            where, source = f"{path}[{index}].{kind}", getattr(projection, kind)
            if kind == "serviceAccountToken":
                _validate_token(source, where, out)
                places = [source.path]
            else:
                if kind != "downwardAPI" and not source.localObjectReference.name:
                    out.append(required(f"{where}.name"))
                _validate_items(source.items, f"{where}.items", out)
                places = [item.path for item in source.items]
            _validate_places(places, taken, where, out)


def _validate_places(places: Iterable[str], taken: set[str], path: str, out: list[Violation]) -> None:
    for place in filter(None, places):
        if place in taken:
            out.append(invalid(path, place, "conflicting duplicate paths"))
        taken.add(place)


def _validate_token(token: ServiceAccountTokenProjection, path: str, out: list[Violation]) -> None:
    if not MIN_TOKEN_SECONDS <= token.expirationSeconds <= MAX_TOKEN_SECONDS:
        out.append(invalid(f"{path}.expirationSeconds", token.expirationSeconds, between(MIN_TOKEN_SECONDS, MAX_TOKEN_SECONDS)))
    _validate_place(token.path, f"{path}.path", out)


def _validate_items(items: Iterable[KeyToPath | DownwardAPIVolumeFile], path: str, out: list[Violation]) -> None:
    for index, item in enumerate(items):
        where = f"{path}[{index}]"
        _validate_place(item.path, f"{where}.path", out)
        if item.HasField("mode"):
            _validate_mode(item.mode, f"{where}.mode", out)
        if isinstance(item, DownwardAPIVolumeFile):
            _validate_pod_field(item, where, out)
        elif not item.key:
            out.append(required(f"{where}.key"))


def _validate_pod_field(item: DownwardAPIVolumeFile, path: str, out: list[Violation]) -> None:
    if item.HasField("fieldRef"):
        validate_field_selector(item.fieldRef, _POD_FIELDS, f"{path}.fieldRef", out)
        if item.HasField("resourceFieldRef"):
            out.append(invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
    elif item.HasField("resourceFieldRef"):
        if not item.resourceFieldRef.containerName:
            out.append(required(f"{path}.resourceFieldRef.containerName"))
        validate_amount_selector(item.resourceFieldRef, f"{path}.resourceFieldRef", out)
    else:
        out.append(required(path, "one of fieldRef and resourceFieldRef is required"))


def _validate_mode(mode: int, path: str, out: list[Violation]) -> None:
    if not 0 <= mode <= MAX_MODE:
        out.append(invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive"))


def _validate_place(place: str, path: str, out: list[Violation]) -> None:
    """Where in the volume a file is: below it, and not among the entries that the kubelet keeps there."""
    if not place:
        out.append(required(path))
    elif place.startswith("/"):
        out.append(invalid(path, place, "must be a relative path"))
    elif ".." in place.split("/"):
        out.append(invalid(path, place, "must not contain '..'"))
    elif place.startswith(".."):
        out.append(invalid(path, place, "must not start with '..'"))
