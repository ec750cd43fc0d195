"""Merges, compares and prunes the JSON forms of objects by their types, for server-side apply.

`ABSENT` stands for a field that is not there; None is a null in the data. No function modifies its arguments.

A leaf is what has one owner: a scalar, an atomic list or map, and a list or map that is empty on both sides.

Source: https://github.com/kubernetes-sigs/structured-merge-diff/tree/master/typed
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, cast

from pinnace.api.fieldset import Element, FieldSet, Path, field_element, field_name, key_element, text_of, value_element
from pinnace.api.patch import json_equal
from pinnace.api.schema import Deduced, Kind, List, Map, Scalar, Type, resolve

_UNDECLARED = "field not declared in schema"
MAX_ERRORS = 10
"""Errors of one object that are reported."""


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT


class TypeMismatch(ValueError):
    """The object does not match the type. The message has all problems, with Kubernetes' wording."""

    def __init__(self, problems: Sequence[str]) -> None:
        text = (
            problems[0]
            if len(problems) == 1
            else "\n".join(("errors:", *(f"  {problem}" for problem in problems[:MAX_ERRORS])))
        )
        super().__init__(text)


class _ItemError(ValueError):
    """An item of a list has no identity."""


@dataclass(frozen=True, slots=True)
class Comparison:
    added: FieldSet = field(default_factory=FieldSet)
    modified: FieldSet = field(default_factory=FieldSet)
    removed: FieldSet = field(default_factory=FieldSet)

    def without(self, ignored: FieldSet) -> "Comparison":
        return Comparison(*(item.without_trees(ignored) for item in (self.added, self.modified, self.removed)))

    @property
    def changed(self) -> FieldSet:
        return self.added | self.modified


def check(of: Type, value: Any) -> None:
    """Raise TypeMismatch for unknown fields, values of other types, and items with the same keys."""
    if problems := list(_find_problems(of, value, ())):
        raise TypeMismatch([f"{text_of(path)}: {message}" if path else message for path, message in problems])


def _find_problems(of: Type, value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if value is None or isinstance(of, Deduced):
        return
    match of:
        case Scalar():
            if not _fits_kind(of.kind, value):
                yield path, f"expected {of.kind.value}, got {_show_type(value)}"
        case List():
            if not isinstance(value, list):
                yield path, f"expected list, got {_show_type(value)}"
                return
            seen = set[Element]()
            for index, item in enumerate(value):
                element = f"i:{index}"
                if not of.atomic:
                    try:
                        element = element_of(of, item)
                    except _ItemError as error:
                        yield path, f"element {index}: {error}"
                        continue
                    if element in seen:
                        yield path, f"duplicate entries for key {text_of((element,))}"
                        continue
                    seen.add(element)
                yield from _find_problems(of.element, item, (*path, element))
        case Map():
            if not isinstance(value, dict):
                yield path, f"expected map, got {_show_type(value)}"
                return
            for name, each in value.items():
                inside, inner = of.value(str(name)), (*path, field_element(str(name)))
                if inside is not None:
                    yield from _find_problems(inside, each, inner)
                elif not of.is_open:
                    yield inner, _UNDECLARED


def _fits_kind(kind: Kind, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case Kind.STRING:
            return isinstance(value, str)
        case Kind.NUMBER:
            return is_number
        case Kind.BOOLEAN:
            return isinstance(value, bool)
    return is_number or isinstance(value, str)


def _show_type(value: Any) -> str:
    """The type of a value. The value may be a secret."""
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
    return "list" if isinstance(value, list) else "map"


def element_of(of: List, item: Any) -> Element:
    """Return the path element of an item of a set or a list map. Raises ValueError for an item without identity."""
    if not of.keys:
        if item is None or isinstance(item, dict | list):
            raise _ItemError("associative list without keys has an element that's a map type")
        return value_element(item)
    if not isinstance(item, dict):
        raise _ItemError("associative list with keys may not have non-map elements")
    result = dict[str, Any]()
    for key in of.keys:
        if key in item:
            result[key] = item[key]
        elif (default := of.default(key)) is not None:
            result[key] = default
    if not result:
        raise _ItemError(f"associative list with keys has an element that omits all key fields {list(of.keys)}")
    return key_element(result)


def field_set(of: Type, value: Any) -> FieldSet:
    """Return the fields that a configuration owns. The object must have the type (see `check`)."""
    return _owned_fields(of, value)[1]


def _owned_fields(of: Type, value: Any) -> tuple[bool, FieldSet]:
    """Return whether the value itself is an owned field, and the owned fields inside it."""
    result, of = FieldSet(), resolve(of, value)
    if isinstance(of, Scalar) or of.atomic:
        return True, result
    if isinstance(of, List):
        for element, item in _identified_items(of, value):
            result.members.add(element)
            if below := _owned_fields(of.element, item)[1]:
                result.children[element] = below
        return False, result
    for name, each in _entries_of(value).items():
        element, inside = field_element(name), of.value(name)
        itself, below = _owned_fields(inside, each) if inside is not None else (True, FieldSet())
        if itself or each is None or each == {} or of.field(name) is None:
            result.members.add(element)
        if below:
            result.children[element] = below
    return False, result


def merge(of: Type, live: Any, applied: Any) -> Any:
    """Return the live value with the applied one merged into it; ABSENT if nothing is left. Raises TypeMismatch if items of a
    live list map have no keys."""
    of = resolve(of, live, applied)
    if _is_leaf(of, live, applied):
        return live if applied is ABSENT else applied
    if isinstance(of, List):
        return _merge_lists(of, live, applied) or ABSENT
    assert isinstance(of, Map)
    left, right = _entries_of(live), _entries_of(applied)
    merged = dict[str, Any]()
    for name in {**left, **right}:
        inside = of.value(name)
        before, wanted = left.get(name, ABSENT), right.get(name, ABSENT)
        value = merge(inside, before, wanted) if inside is not None else (before if wanted is ABSENT else wanted)
        if value is not ABSENT:
            merged[name] = value
    return merged or ABSENT


def _merge_lists(of: List, live: Any, applied: Any) -> list[Any]:
    """Applied items keep their order; live items keep their position relative to them."""
    left, right = _identified_items(of, live), _identified_items(of, applied)
    if isinstance(live, list) and len(left) != len(live):
        raise TypeMismatch(["the live object has an item without keys"])
    wanted = dict(right)
    result = dict[Element, Any]()
    for element, item in left:
        result[element] = ABSENT if element in result else item  # duplicates are not merged
    shared = iter([element for element, _ in right if element in result])
    following = next(shared, None)
    merged, done = list[Any](), set[Element]()

    def take(element: Element, before: Any, item: Any) -> None:
        value = merge(of.element, before, item)
        if value is not ABSENT:
            merged.append(value)

    at_left = at_right = 0
    while at_left < len(left) or at_right < len(right):
        if at_left < len(left):
            element, item = left[at_left]
            if at_right < len(right):
                if element == right[at_right][0]:
                    take(element, result[element], wanted[element])
                    done.add(element)
                    at_left, at_right = at_left + 1, at_right + 1
                    following = next(shared, None)
                    continue
                if element in wanted and following is not None and following != element:
                    at_left += 1
                    continue
            if element not in wanted:
                take(element, item, ABSENT)
                at_left += 1
                continue
            if element in done:
                at_left += 1
        if at_right < len(right):
            element, item = right[at_right]
            take(element, result.get(element, ABSENT), item)
            done.add(element)
            at_right += 1
            if following == element:
                following = next(shared, None)
    return merged


def compare(of: Type, old: Any, new: Any) -> Comparison:
    """Return the fields that differ. ABSENT is an object that is not there."""
    comparison = Comparison()
    _compare_values(of, old, new, (), comparison)
    return comparison


def _compare_values(of: Type | None, old: Any, new: Any, path: Path, out: Comparison) -> None:
    of = resolve(of, old, new) if of is not None else None
    if of is None or _is_leaf(of, old, new):
        if old is ABSENT:
            out.added.insert(path)
        elif new is ABSENT:
            out.removed.insert(path)
        elif not json_equal(old, new):
            out.modified.insert(path)
        return
    if isinstance(of, List):
        _compare_lists(of, old, new, path, out)
    elif isinstance(of, Map):
        left, right = _entries_of(old), _entries_of(new)
        for name in left.keys() | right.keys():
            if (before := left.get(name, ABSENT)) is not (after := right.get(name, ABSENT)):
                _compare_values(of.value(name), before, after, (*path, field_element(name)), out)
    if old is ABSENT:
        out.added.insert(path)
    elif new is ABSENT:
        out.removed.insert(path)


def _compare_lists(of: List, old: Any, new: Any, path: Path, out: Comparison) -> None:
    """Duplicates are compared as a whole."""
    left, right = _group_items(of, old), _group_items(of, new)
    for element in left.keys() | right.keys():
        before, after, inner = left.get(element, []), right.get(element, []), (*path, element)
        if len(before) <= 1 and len(after) <= 1:
            _compare_values(of.element, before[0] if before else ABSENT, after[0] if after else ABSENT, inner, out)
        elif len(before) > 1 and len(after) > 1:
            if not json_equal(before, after):
                out.modified.insert(inner)
        elif len(before) > 1:
            if after:
                _compare_values(of.element, ABSENT, after[0], inner, out)
            out.removed.insert(inner)
        else:
            if before:
                _compare_values(of.element, before[0], ABSENT, inner, out)
            out.added.insert(inner)


def remove(of: Type, value: Any, gone: FieldSet) -> Any:
    """Return the value without these fields; ABSENT or an empty part if nothing remains."""
    of = resolve(of, value)
    if isinstance(of, Scalar):
        return value
    if of.atomic or not value:
        return ABSENT
    if isinstance(of, List):
        kept = list[Any]()
        for element, item in _identified_items(of, value):
            if element in gone.members:
                continue
            below = gone.children.get(element)
            left = remove(of.element, item, below) if below else item
            kept.append(None if left is ABSENT else left)
        return kept or ABSENT
    rest = dict[str, Any]()
    for name, each in _entries_of(value).items():
        element, inside = field_element(name), of.value(name)
        if element in gone.members:
            continue
        below = gone.children.get(element)
        left = remove(inside, each, below) if below and inside is not None else each
        rest[name] = None if left is ABSENT else left
    return rest or ABSENT


def with_named_fields(of: Type, fields: FieldSet) -> FieldSet:
    """Return the set with each declared field that contains a member: a set of .spec.replicas gets .spec. Keys of maps and
    items of lists are not added."""
    result = FieldSet()
    result.members = set(fields.members)
    for element, below in fields.children.items():
        name, inside = field_name(element), cast(Type | None, None)
        if isinstance(of, Deduced):
            inside = of
        elif isinstance(of, List):
            inside = of.element
        elif isinstance(of, Map) and name is not None:
            inside = of.value(name)
            if of.field(name) is not None:
                result.members.add(element)
        result.children[element] = with_named_fields(inside, below) if inside is not None else below
    return result


def _is_leaf(of: Type, old: Any, new: Any) -> bool:
    if isinstance(of, Scalar) or of.atomic:
        return True
    return not _is_filled(old) and not _is_filled(new)


def _is_filled(value: Any) -> bool:
    return value is not ABSENT and bool(value)


def _entries_of(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _identified_items(of: List, value: Any) -> list[tuple[Element, Any]]:
    """Return the items that have an identity, with their path elements."""
    result = list[tuple[Element, Any]]()
    for item in value if isinstance(value, list) else ():
        try:
            result.append((element_of(of, item), item))
        except _ItemError:
            continue
    return result


def _group_items(of: List, value: Any) -> dict[Element, list[Any]]:
    result = dict[Element, list[Any]]()
    for element, item in _identified_items(of, value):
        result.setdefault(element, []).append(item)
    return result
