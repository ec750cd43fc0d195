"""Sets of fields of an object: what a manager owns, as managedFields store it (FieldsV1).

A path is a tuple of elements. Elements are strings in the form of FieldsV1:

    f:<name>    a field of an object, or a key of a map
    k:<keys>    the item of a list with these keys, a JSON object
    v:<value>   the item of a set, as JSON
    i:<index>   the item of a list at this position

In JSON a set is a tree: {"f:spec":{"f:replicas":{}}} has the path .spec.replicas. A node that has "." is a member itself,
beside the paths that it contains.

Source: https://github.com/kubernetes-sigs/structured-merge-diff/tree/master/fieldpath (set.go, serialize.go)
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.encoder import encode_basestring
from typing import Any

Element = str
Path = tuple[Element, ...]

_FIELD, _KEY, _VALUE, _INDEX = "f:", "k:", "v:", "i:"
_ORDER = {_FIELD: 0, _KEY: 1, _VALUE: 2, _INDEX: 3}
_SELF = "."
MAX_DEPTH = 100
"""Elements of a path. No API object is as deep."""
_dumps: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class FieldSetError(ValueError):
    """The text is not a valid set of fields."""


class FieldSet:
    """A set of paths. The operators return new sets, which may share parts with their operands."""

    __slots__ = ("children", "members")

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self.members: set[Element] = set()
        """The paths of one element."""
        self.children: dict[Element, FieldSet] = {}
        """The rest of the longer paths, by their first element. Children are not empty."""
        for path in paths:
            self.insert(path)

    def insert(self, path: Path) -> None:
        """Add a path, in place. Empty paths are not added."""
        if not path:
            return
        at = self
        for element in path[:-1]:
            at = at.children.setdefault(element, FieldSet())
        at.members.add(path[-1])

    def __bool__(self) -> bool:
        return bool(self.members or self.children)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSet) and self.members == other.members and self.children == other.children

    __hash__ = None  # type: ignore[assignment]  # unhashable: it is mutable

    def __contains__(self, path: Path) -> bool:
        at: FieldSet | None = self
        for element in path[:-1]:
            at = at.children.get(element) if at is not None else None
        return at is not None and bool(path) and path[-1] in at.members

    def __iter__(self) -> Iterator[Path]:
        """The paths in the order of structured-merge-diff: members before children."""
        for element in sorted(self.members, key=rank):
            yield (element,)
        for element in sorted(self.children, key=rank):
            for rest in self.children[element]:
                yield (element, *rest)

    def __repr__(self) -> str:
        return f"FieldSet({self.to_json()})"

    def child(self, element: Element) -> "FieldSet":
        """Return the paths below an element, without it."""
        return self.children.get(element, _EMPTY)

    def all_elements(self) -> set[Element]:
        """Return the first elements of all paths."""
        return self.members | self.children.keys()

    def __or__(self, other: "FieldSet") -> "FieldSet":
        if not other:
            return self
        if not self:
            return other
        field_set = FieldSet()
        field_set.members = self.members | other.members
        for element in self.children.keys() | other.children.keys():
            field_set.children[element] = self.child(element) | other.child(element)
        return field_set

    def __and__(self, other: "FieldSet") -> "FieldSet":
        field_set = FieldSet()
        field_set.members = self.members & other.members
        for element in self.children.keys() & other.children.keys():
            if both := self.children[element] & other.children[element]:
                field_set.children[element] = both
        return field_set

    def __sub__(self, other: "FieldSet") -> "FieldSet":
        """Return the paths that are not in `other`. A path of `other` does not remove longer paths."""
        if not self or not other:
            return self
        field_set = FieldSet()
        field_set.members = self.members - other.members
        for element, child in self.children.items():
            if left := child - other.child(element):
                field_set.children[element] = left
        return field_set

    def without_trees(self, other: "FieldSet") -> "FieldSet":
        """Return the paths that neither are in `other` nor begin with a path of it."""
        if not self or not other:
            return self
        field_set = FieldSet()
        field_set.members = self.members - other.members
        for element, child in self.children.items():
            if element not in other.members and (left := child.without_trees(other.child(element))):
                field_set.children[element] = left
        return field_set

    def with_names(self, names: Mapping[str, str]) -> "FieldSet":
        """Return the set with other names of top-level fields."""
        if not names:
            return self
        elements = {f"{_FIELD}{name}": f"{_FIELD}{other}" for name, other in names.items()}
        field_set = FieldSet()
        field_set.members = {elements.get(element, element) for element in self.members}
        field_set.children = {elements.get(element, element): child for element, child in self.children.items()}
        return field_set

    def to_json(self) -> str:
        """Return the set as FieldsV1."""
        return f"{{{','.join(self._encode_entries())}}}"

    def _encode_entries(self) -> Iterator[str]:
        for element in sorted(self.members | self.children.keys(), key=rank):
            child, inside = self.children.get(element), list[str]()
            if child is not None:
                inside = [f'"{_SELF}":{{}}'] if element in self.members else []
                inside += child._encode_entries()
            yield f"{_dumps(element)}:{{{','.join(inside)}}}"


_EMPTY = FieldSet()


def from_json(text: bytes | str) -> FieldSet:
    """Raise FieldSetError if the text is invalid, or has paths of more than MAX_DEPTH elements."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FieldSetError(f"not JSON: {error}") from None
    return _from_tree(tree, MAX_DEPTH)[1]


def _from_tree(tree: Any, room: int) -> tuple[bool, FieldSet]:
    """Return whether the node itself is a member, and the paths below it. Elements of unknown types are omitted."""
    if not isinstance(tree, Mapping):
        raise FieldSetError("expected a tree of objects")
    if room < 0:
        raise FieldSetError("nested too deeply")
    field_set, itself = FieldSet(), _SELF in tree
    for name, below in tree.items():
        if name == _SELF or (element := _canonical_element(name)) is None:
            continue
        member, children = _from_tree(below, room - 1)
        if member:
            field_set.members.add(element)
        if children:
            field_set.children[element] = children
    return itself or not field_set, field_set


def _canonical_element(element: str) -> Element | None:
    """The element in the canonical form of `key_element` and `value_element`; None for an unknown type."""
    kind, rest = element[:2], element[2:]
    if kind == _FIELD:
        return element
    if kind not in _ORDER:
        return None
    try:
        value = json.loads(rest)
    except ValueError:
        raise FieldSetError(f"{element[:64]} is no path element") from None
    if kind == _KEY:
        if not isinstance(value, Mapping) or not value:
            raise FieldSetError(f"{element[:64]} has no keys")
        return key_element(value)
    return value_element(value) if kind == _VALUE else f"{_INDEX}{value}"


def field_element(name: str) -> Element:
    return _FIELD + name


def key_element(keys: Mapping[str, Any]) -> Element:
    if len(keys) == 1:  # most often a name
        ((name, value),) = keys.items()
        if isinstance(value, str):
            return f"{_KEY}{{{encode_basestring(name)}:{encode_basestring(value)}}}"
    return _KEY + _dumps(dict(sorted(keys.items())))


def value_element(value: Any) -> Element:
    return _VALUE + _dumps(value)


def field_name(element: Element) -> str | None:
    """The name of a field; None for an item of a list."""
    return element[2:] if element.startswith(_FIELD) else None


def text_of(path: Path) -> str:
    """The path in the form of Kubernetes' messages: .spec.template.spec.containers[name="c"].image."""
    return "".join(map(_show_element, path))


def _show_element(element: Element) -> str:
    kind, rest = element[:2], element[2:]
    if kind == _FIELD:
        return f".{rest}"
    if kind == _KEY:
        return f"[{','.join(f'{name}={_dumps(value)}' for name, value in json.loads(rest).items())}]"
    return f"[={rest}]" if kind == _VALUE else f"[{rest}]"


def rank(element: Element) -> tuple[Any, ...]:
    """The sort key of structured-merge-diff: fields by name, then items by their keys, by value, by index."""
    kind, rest = element[:2], element[2:]
    if kind == _FIELD:
        return 0, rest
    value = json.loads(rest)
    if kind == _KEY:
        return 1, [(name, _value_rank(each)) for name, each in value.items()]
    return _ORDER[kind], _value_rank(value)


def _value_rank(value: Any) -> tuple[int, Any]:
    match value:
        case bool():
            return 2, value
        case int() | float():
            return 0, value
        case str():
            return 1, value
    return 3, _dumps(value)
