"""The little languages of `label` and `taint`: `key=value` sets, `key-` removes. Pure."""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from pinnace.api import names
from pinnace.api.core_v1_pb2 import Node, Taint
from pinnace.cli.outcomes import ExitCode, Failure, usage

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OVERWRITE = "--overwrite replaces it"


@dataclass(frozen=True, slots=True)
class LabelEdits:
    """Labels to set, and keys to remove."""

    set: dict[str, str]
    remove: tuple[str, ...]

    @classmethod
    def parse(cls, words: Sequence[str]) -> "LabelEdits":
        """Raises Failure: usage for a wrong form, invalid for a key or value that cannot be a label's."""
        added: dict[str, str] = {}
        removed: list[str] = []
        for word in words:
            key, equals, value = word.partition("=")
            if not equals and word.endswith("-"):
                key = word[:-1]
                removed.append(key)
            elif equals and key not in added:
                added[key] = value
            elif equals:
                raise usage(f'label "{key}" is given twice')
            else:
                raise usage(f'"{word}": expected KEY=VALUE to set or KEY- to remove')
            _check(f'label key "{key}"', names.label_key(key))
            _check(f'label value "{value}"', names.label_value(value))
        if both := added.keys() & removed:
            raise usage(f'label "{min(both)}" cannot be set and removed at once')
        return cls(added, tuple(removed))

    def apply(self, labels: MutableMapping[str, str], *, overwrite: bool) -> str:
        """Changes the labels of one object. Raises Failure (conflict) when one has another value already."""
        for key, value in self.set.items():
            if not overwrite and labels.get(key, value) != value:
                raise Failure(f'label "{key}" is "{labels[key]}" already', hint=OVERWRITE, code=ExitCode.CONFLICT)
        before = dict(labels)
        labels.update(self.set)
        for key in self.remove:
            labels.pop(key, None)
        if dict(labels) == before:
            return "not labeled (nothing to change)"
        return "labeled" if self.set else "unlabeled"


@dataclass(frozen=True, slots=True)
class TaintEdits:
    """Taints to set (one for each key and effect), and (key, effect) to remove, where an empty effect is every effect."""

    set: tuple[Taint, ...]
    remove: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, words: Sequence[str]) -> "TaintEdits":
        """Raises Failure: usage for a wrong form, invalid for a key, value or effect that cannot be a taint's."""
        added: list[Taint] = []
        removed: list[tuple[str, str]] = []
        for word in words:
            front, colon, effect = word.removesuffix("-").partition(":")
            key, _, value = front.partition("=")
            if word.endswith("-"):
                removed.append((key, effect))
            elif not colon:
                raise usage(f'"{word}": expected KEY=VALUE:EFFECT or KEY:EFFECT to set, KEY:EFFECT- or KEY- to remove')
            elif any((taint.key, taint.effect) == (key, effect) for taint in added):
                raise usage(f'taint "{key}:{effect}" is given twice')
            else:
                added.append(Taint(key=key, value=value, effect=effect))
            _check(f'taint key "{key}"', names.label_key(key))
            _check(f'taint value "{value}"', names.label_value(value))
            if colon and effect not in EFFECTS:
                _check(f'taint effect "{effect}"', (f"must be {', '.join(EFFECTS[:-1])} or {EFFECTS[-1]}",))
        return cls(tuple(added), tuple(removed))

    def apply(self, node: Node, *, overwrite: bool) -> str:
        """Changes one node. Raises Failure: conflict when it has such a taint already, not found for one to remove."""
        taints = list(node.spec.taints)
        for key, effect in self.remove:
            kept = [taint for taint in taints if not (taint.key == key and effect in ("", taint.effect))]
            if len(kept) == len(taints):
                raise Failure(f'there is no taint "{key}{":" if effect else ""}{effect}"', code=ExitCode.NOT_FOUND)
            taints = kept
        for new in self.set:
            old = next((taint for taint in taints if (taint.key, taint.effect) == (new.key, new.effect)), None)
            if old is None:
                taints.append(new)
            elif old.value != new.value and not overwrite:
                message = f'taint "{new.key}:{new.effect}" has the value "{old.value}" already'
                raise Failure(message, hint=OVERWRITE, code=ExitCode.CONFLICT)
            elif old.value != new.value:
                taints[taints.index(old)] = new
        if taints == list(node.spec.taints):
            return "not changed"
        del node.spec.taints[:]
        node.spec.taints.extend(taints)
        return "modified" if self.set and self.remove else "tainted" if self.set else "untainted"


def _check(what: str, wrong: Sequence[str]) -> None:
    if wrong:
        raise Failure(f"{what}: {wrong[0]}", hint="nothing was changed", code=ExitCode.INVALID)
