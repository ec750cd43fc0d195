"""The standard functions of CEL, and cel-go's extensions that Kubernetes enables: strings (version 2), sets, optional types,
lists (version 3), and comprehensions of two variables.

A row declares a function: its id in cel-go, its signature, and its implementation over values (see `pinnace.cel.types`). An
implementation raises EvaluationFailure. Operators that do not evaluate all operands are in `pinnace.cel.evaluation`.

Source: https://github.com/google/cel-spec/blob/master/doc/langdef.md, https://pkg.go.dev/github.com/google/cel-go/ext
"""

import math
import operator
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from pinnace.cel import types
from pinnace.cel.conversions import (
    MIN_INT,
    SECOND,
    SPACES,
    TO_LOWER,
    TO_UPPER,
    add_strings,
    bytes_to_string,
    char_at,
    check_int,
    date_at,
    double_to_int,
    double_to_uint,
    format_text,
    index_of,
    join_texts,
    last_index_of,
    match_pattern,
    parse_bool,
    parse_double,
    parse_duration,
    parse_int,
    parse_timestamp,
    parse_uint,
    quote,
    replace_text,
    split_text,
    substring,
    to_duration,
    to_text,
    to_timestamp,
    to_unsigned,
    truncate,
    type_value,
)
from pinnace.cel.meter import Meter
from pinnace.cel.types import (
    ABSENT,
    EvaluationFailure,
    MapList,
    Optional,
    SetList,
    StructValue,
    Type,
    Uint,
)

Implementation = Callable[..., Any]
_TYPE_NAMES = {
    "bool": types.BOOL, "int": types.INT, "uint": types.UINT, "double": types.DOUBLE, "string": types.STRING,
    "bytes": types.BYTES,
    "dyn": types.DYN, "duration": types.DURATION, "timestamp": types.TIMESTAMP, "null": types.NULL,
}  # fmt: skip
_NUMBERS = frozenset({int, Uint, float})
_LISTS = frozenset({list, SetList, MapList})


class Overload:
    """A function of fixed types. `member`: it is called on its first parameter. `takes_meter`: so does the implementation,
    first."""

    __slots__ = ("id", "impl", "member", "name", "params", "result", "takes_meter", "variables")

    def __init__(
        self,
        id_: str,
        name: str,
        member: bool,
        params: tuple[Type, ...],
        result: Type,
        impl: Implementation | None,
        takes_meter: bool,
    ) -> None:
        self.id, self.name, self.member, self.params, self.result = id_, name, member, params, result
        self.impl, self.takes_meter = impl, takes_meter
        self.variables = frozenset(_type_parameters((*params, result)))


def _type_parameters(found: Iterable[Type]) -> Iterable[str]:
    for each in found:
        if each.kind == "param":
            yield each.name
        yield from _type_parameters(each.params)


def define_type(short: str, value: Type) -> Type:
    """Give a type a short name for signatures."""
    _TYPE_NAMES[short] = value
    return value


def parse_type(text: str) -> Type:
    """Return the type that a signature names: "list(A)", "map(string, dyn)". Capital letters are type variables."""
    name, _, rest = text.partition("(")
    if not rest:
        return _TYPE_NAMES.get(name) or Type("param", name)
    params = tuple(parse_type(part) for part in _split_params(rest[:-1]))
    if name in ("list", "map", "type"):
        return Type(name, params=params)
    return Type("opaque", name, params)


def _split_params(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()] if text.strip() else parts


FUNCTIONS: dict[str, list[Overload]] = {}
"""All functions, by name."""


def declare(id_: str, signature: str, impl: Implementation | None, *, takes_meter: bool = False) -> None:
    """Declare a function: "size(string): int", or a member as ":string:startsWith(string): bool"."""
    target = ""
    if signature.startswith(":"):
        _, target, signature = signature.split(":", 2)
    left, _, result = signature.rpartition("): ")
    head, _, params = left.partition("(")
    if target:
        params = f"{target}, {params}" if params else target
    member = bool(target)
    overload = Overload(id_, head, member, tuple(map(parse_type, _split_params(params))), parse_type(result), impl, takes_meter)
    FUNCTIONS.setdefault(head, []).append(overload)


# Equality and order


def equals(meter: Meter, a: Any, b: Any) -> bool:
    """Compare two values of any types. Numbers of different types are equal if their values are. Lists of type set and map are
    compared without their order, as Kubernetes compares them."""
    type_a, type_b = type(a), type(b)
    if type_a in _NUMBERS:
        return type_b in _NUMBERS and a == b
    if type_a in _LISTS:
        if type_b not in _LISTS or len(a) != len(b):
            return False
        meter.charge(0, 10 + 2 * len(a))
        if type_a is SetList:
            return _equal_sets(meter, a, b)
        if type_a is MapList:
            return _equal_map_lists(meter, a, b)
        return all(equals(meter, x, y) for x, y in zip(a, b, strict=True))
    if type_a is dict or type_a is StructValue:
        if type_b is not type_a or len(a) != len(b):
            return False
        meter.charge(0, 10 + 3 * len(a))
        return all(key in b and equals(meter, value, b[key]) for key, value in a.items())
    if type_a is Optional:
        if type_b is not Optional or a is ABSENT or b is ABSENT:
            return a is b
        return equals(meter, a.value, b.value)
    return type_a is type_b and bool(a == b)


def _equal_sets(meter: Meter, a: list[Any], b: list[Any]) -> bool:
    meter.charge(0, 5 * len(a))
    return {_set_item_key(meter, item) for item in a} >= {_set_item_key(meter, item) for item in b}


def _equal_map_lists(meter: Meter, a: MapList, b: list[Any]) -> bool:
    meter.charge(0, 20 * len(a))
    items = {_item_key(meter, item, a.keys): item for item in a}
    return all(
        (found := items.get(_item_key(meter, item, a.keys), ABSENT)) is not ABSENT and equals(meter, found, item) for item in b
    )


def _set_item_key(meter: Meter, value: Any) -> Any:
    """Return a value that is equal for equal items of a set."""
    kind = type(value)
    if kind is str:
        return value
    if kind in _LISTS:
        meter.charge(0, 10 + 5 * len(value))
        return (list, *(_set_item_key(meter, item) for item in value))
    if kind is dict:
        meter.charge(0, 10 + 10 * len(value))
        return frozenset((key, _set_item_key(meter, item)) for key, item in value.items())
    return (kind, value)


def _item_key(meter: Meter, item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(_set_item_key(meter, item.get(key)) for key in keys) if isinstance(item, dict) else ()


def _add_lists(meter: Meter, a: list[Any], b: list[Any]) -> list[Any]:
    meter.charge(0, len(a) + len(b))
    if type(a) in (SetList, MapList):
        meter.charge(0, 20 * (len(a) + len(b)))
    if type(a) is SetList:
        items = {_set_item_key(meter, item): item for item in a}
        for item in b:
            items.setdefault(_set_item_key(meter, item), item)
        return SetList([*a, *list(items.values())[len(a) :]])
    if type(a) is MapList:
        merged = {_item_key(meter, item, a.keys): item for item in a}
        merged.update((_item_key(meter, item, a.keys), item) for item in b)
        result = MapList(merged.values())
        result.keys = a.keys
        return result
    return [*a, *b]


# Numbers


def _divide_integers(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationFailure("division by zero")
    return check_int(int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1))


def _integer_remainder(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationFailure("modulus by zero")
    if b == -1 and a == MIN_INT:
        raise EvaluationFailure("integer overflow")
    return int(math.fmod(a, b)) if abs(a) < 2**53 and abs(b) < 2**53 else abs(a) % abs(b) * (1 if a >= 0 else -1)


def _divide_double(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _multiply_double(a: float, b: float) -> float:
    return a * b


# Lists


def _index_list(items: list[Any], index: Any) -> Any:
    if type(index) is float and index.is_integer():
        index = int(index)
    if not 0 <= index < len(items):
        raise EvaluationFailure(f"index out of bounds: {index}")
    return items[index]


def _index_map(entries: dict[Any, Any], key: Any) -> Any:
    if type(key) is bool and not any(type(each) is bool for each in entries):
        raise EvaluationFailure(f"no such key: {to_text(key)}")
    try:
        return entries[key]
    except KeyError:
        raise EvaluationFailure(f"no such key: {to_text(key)}") from None
    except TypeError:
        raise EvaluationFailure("unsupported key type") from None


def _in_list(meter: Meter, item: Any, items: list[Any]) -> bool:
    meter.charge(0, 3 * len(items))
    return any(equals(meter, item, each) for each in items)


def _in_map(key: Any, entries: dict[Any, Any]) -> bool:
    try:
        return key in entries
    except TypeError:
        return False


def _index_of_item(meter: Meter, items: list[Any], item: Any) -> int:
    meter.charge(0, 3 * len(items))
    return next((index for index, each in enumerate(items) if equals(meter, each, item)), -1)


def _last_index_of_item(meter: Meter, items: list[Any], item: Any) -> int:
    meter.charge(0, 3 * len(items))
    return next((index for index in range(len(items) - 1, -1, -1) if equals(meter, items[index], item)), -1)


def _check_comparable(items: list[Any]) -> None:
    kinds = set(map(type, items))
    if len(kinds) > 1 and not kinds <= _NUMBERS:
        raise EvaluationFailure("no such overload")


def _is_sorted(meter: Meter, items: list[Any]) -> bool:
    meter.charge(0, 3 * len(items))
    _check_comparable(items)
    return all(items[index] <= items[index + 1] for index in range(len(items) - 1))


def _list_min(meter: Meter, items: list[Any]) -> Any:
    return _list_extreme(meter, items, "min", min)


def _list_max(meter: Meter, items: list[Any]) -> Any:
    return _list_extreme(meter, items, "max", max)


def _list_extreme(meter: Meter, items: list[Any], name: str, function: Callable[[list[Any]], Any]) -> Any:
    meter.charge(0, 2 * len(items))
    if not items:
        raise EvaluationFailure(f"{name} called on empty list")
    _check_comparable(items)
    return function(items)


def _sum_of(zero: Callable[[int], Any]) -> Implementation:
    def sum_items(meter: Meter, items: list[Any]) -> Any:
        meter.charge(0, len(items))
        return zero(sum(items))

    return sum_items


def _contains_all(meter: Meter, items: list[Any], part: list[Any]) -> bool:
    return all(_in_list(meter, item, items) for item in part)


def _sets_intersect(meter: Meter, a: list[Any], b: list[Any]) -> bool:
    return any(_in_list(meter, item, b) for item in a)


def _sets_are_equivalent(meter: Meter, a: list[Any], b: list[Any]) -> bool:
    return _contains_all(meter, a, b) and _contains_all(meter, b, a)


def _slice_list(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationFailure(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationFailure(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(items) < end:
        raise EvaluationFailure(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flatten(meter: Meter, items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationFailure("level must be non-negative")
    flat = list[Any]()
    for item in items:
        if type(item) in _LISTS and depth > 0:
            flat.extend(_flatten(meter, item, depth - 1))
        else:
            flat.append(item)
    meter.charge(0, len(items) + len(flat))
    return flat


def _integer_range(meter: Meter, size: int) -> list[int]:
    meter.charge(0, max(0, size))
    return list(range(size))


def _distinct_items(meter: Meter, items: list[Any]) -> list[Any]:
    distinct = list[Any]()
    for item in items:
        if not _in_list(meter, item, distinct):
            distinct.append(item)
    return distinct


def _sort(meter: Meter, items: list[Any]) -> list[Any]:
    meter.charge(0, 4 * len(items))
    _check_comparable(items)
    return sorted(items)


def _sort_by_keys(meter: Meter, items: list[Any], keys: list[Any]) -> list[Any]:
    meter.charge(0, 8 * len(items))
    _check_comparable(keys)
    order = sorted(range(len(items)), key=keys.__getitem__)
    return [items[index] for index in order]


def _insert(meter: Meter, entries: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    return _insert_map(meter, entries, {key: value})


def _insert_map(meter: Meter, entries: dict[Any, Any], added: dict[Any, Any]) -> dict[Any, Any]:
    meter.charge(0, len(entries) + len(added))
    for key in added:
        if key in entries:
            raise EvaluationFailure(f"insert failed: key '{to_text(key)}' already exists")
    return {**entries, **added}


# Optional values


def _is_zero(value: Any) -> bool:
    return value is None or (not value if not isinstance(value, Optional) else value is ABSENT)


def _value_of(optional: Optional) -> Any:
    if optional is ABSENT:
        raise EvaluationFailure("optional.none() dereference")
    return optional.value


def _unwrap(meter: Meter, items: list[Optional]) -> list[Any]:
    meter.charge(0, len(items))
    return [item.value for item in items if item is not ABSENT]


def _optional_index(container: Any, key: Any) -> Optional:
    if type(container) is Optional:
        if container is ABSENT:
            return ABSENT
        container = container.value
    try:
        value = _index_map(container, key) if type(container) is dict else _index_list(container, key)
    except EvaluationFailure:
        return ABSENT
    return Optional(value)


def _declare_operators() -> None:
    for name in ("_==_", "_!=_"):
        declare("equals" if name == "_==_" else "not_equals", f"{name}(A, A): bool", None)
    declare("conditional", "_?_:_(bool, A, A): A", None)
    declare("logical_and", "_&&_(bool, bool): bool", None)
    declare("logical_or", "_||_(bool, bool): bool", None)
    declare("logical_not", "!_(bool): bool", operator.not_)
    declare("not_strictly_false", "@not_strictly_false(bool): bool", None)
    declare("negate_int64", "-_(int): int", lambda a: check_int(-a))
    declare("negate_double", "-_(double): double", operator.neg)
    declare("add_int64", "_+_(int, int): int", lambda a, b: check_int(a + b))
    declare("add_uint64", "_+_(uint, uint): uint", lambda a, b: to_unsigned(int(a) + int(b)))
    declare("add_double", "_+_(double, double): double", operator.add)
    declare("add_string", "_+_(string, string): string", add_strings, takes_meter=True)
    declare("add_bytes", "_+_(bytes, bytes): bytes", operator.add)
    declare("add_list", "_+_(list(A), list(A)): list(A)", _add_lists, takes_meter=True)
    declare("add_duration_duration", "_+_(duration, duration): duration", lambda a, b: to_duration(int(a) + int(b)))
    declare("add_duration_timestamp", "_+_(duration, timestamp): timestamp", lambda a, b: to_timestamp(int(a) + int(b)))
    declare("add_timestamp_duration", "_+_(timestamp, duration): timestamp", lambda a, b: to_timestamp(int(a) + int(b)))
    declare("subtract_int64", "_-_(int, int): int", lambda a, b: check_int(a - b))
    declare("subtract_uint64", "_-_(uint, uint): uint", lambda a, b: to_unsigned(int(a) - int(b)))
    declare("subtract_double", "_-_(double, double): double", operator.sub)
    declare("subtract_duration_duration", "_-_(duration, duration): duration", lambda a, b: to_duration(int(a) - int(b)))
    declare("subtract_timestamp_duration", "_-_(timestamp, duration): timestamp", lambda a, b: to_timestamp(int(a) - int(b)))
    declare("subtract_timestamp_timestamp", "_-_(timestamp, timestamp): duration", lambda a, b: to_duration(int(a) - int(b)))
    declare("multiply_int64", "_*_(int, int): int", lambda a, b: check_int(a * b))
    declare("multiply_uint64", "_*_(uint, uint): uint", lambda a, b: to_unsigned(int(a) * int(b)))
    declare("multiply_double", "_*_(double, double): double", _multiply_double)
    declare("divide_int64", "_/_(int, int): int", _divide_integers)
    declare("divide_uint64", "_/_(uint, uint): uint", lambda a, b: Uint(_divide_integers(int(a), int(b))))
    declare("divide_double", "_/_(double, double): double", _divide_double)
    declare("modulo_int64", "_%_(int, int): int", _integer_remainder)
    declare("modulo_uint64", "_%_(uint, uint): uint", lambda a, b: Uint(_integer_remainder(int(a), int(b))))
    for name, word, compare in (
        ("_<_", "less", operator.lt), ("_<=_", "less_equals", operator.le), ("_>_", "greater", operator.gt),
        ("_>=_", "greater_equals", operator.ge),
    ):  # fmt: skip
        for kind, suffix in (
            ("bool", "bool"), ("int", "int64"), ("uint", "uint64"), ("double", "double"), ("string", "string"), ("bytes",
            "bytes"), ("timestamp", "timestamp"), ("duration", "duration"),
        ):  # fmt: skip
            declare(f"{word}_{suffix}", f"{name}({kind}, {kind}): bool", compare)
        for a, b in (
            ("int", "double"),
            ("int", "uint"),
            ("uint", "double"),
            ("uint", "int"),
            ("double", "int"),
            ("double", "uint"),
        ):
            declare(f"{word}_{a}_{b}", f"{name}({a}, {b}): bool", compare)
    declare("index_list", "_[_](list(A), int): A", _index_list)
    declare("index_map", "_[_](map(A, B), A): B", _index_map)
    declare("in_list", "@in(A, list(A)): bool", _in_list, takes_meter=True)
    declare("in_map", "@in(A, map(A, B)): bool", _in_map)


def _declare_standard() -> None:
    for kind in ("bytes", "list(A)", "map(A, B)", "string"):
        name = kind.partition("(")[0]
        declare(f"size_{name}", f"size({kind}): int", len)
        declare(f"{name}_size", f":{kind}:size(): int", len)
    declare("type", "type(A): type(A)", type_value)
    declare("to_dyn", "dyn(A): dyn", lambda a: a)
    for kind in ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"):
        declare(f"{kind}_to_{kind}", f"{kind}({kind}): {kind}", lambda a: a)
    declare("string_to_bool", "bool(string): bool", parse_bool)
    declare("string_to_bytes", "bytes(string): bytes", str.encode)
    declare("int64_to_double", "double(int): double", float)
    declare("string_to_double", "double(string): double", parse_double)
    declare("uint64_to_double", "double(uint): double", float)
    declare("string_to_duration", "duration(string): duration", parse_duration)
    declare("double_to_int64", "int(double): int", double_to_int)
    declare("duration_to_int64", "int(duration): int", int)
    declare("string_to_int64", "int(string): int", parse_int)
    declare("timestamp_to_int64", "int(timestamp): int", lambda a: int(a) // SECOND)
    declare("uint64_to_int64", "int(uint): int", lambda a: check_int(int(a)))
    for kind, suffix in (
        ("bool", "bool"),
        ("double", "double"),
        ("duration", "duration"),
        ("int", "int64"),
        ("timestamp", "timestamp"),
    ):
        declare(f"{suffix}_to_string", f"string({kind}): string", to_text)
    declare("uint64_to_string", "string(uint): string", to_text)
    declare("bytes_to_string", "string(bytes): string", bytes_to_string)
    declare("int64_to_timestamp", "timestamp(int): timestamp", lambda a: to_timestamp(a * SECOND))
    declare("string_to_timestamp", "timestamp(string): timestamp", parse_timestamp)
    declare("double_to_uint64", "uint(double): uint", double_to_uint)
    declare("int64_to_uint64", "uint(int): uint", to_unsigned)
    declare("string_to_uint64", "uint(string): uint", parse_uint)
    declare("contains_string", ":string:contains(string): bool", lambda a, b: b in a)
    declare("ends_with_string", ":string:endsWith(string): bool", str.endswith)
    declare("starts_with_string", ":string:startsWith(string): bool", str.startswith)
    declare("matches", "matches(string, string): bool", match_pattern, takes_meter=True)
    declare("matches_string", ":string:matches(string): bool", match_pattern, takes_meter=True)
    getters: dict[str, Callable[[datetime], int]] = {
        "getFullYear": lambda t: t.year, "getMonth": lambda t: t.month - 1, "getDayOfYear": lambda t: t.timetuple().tm_yday - 1,
        "getDayOfMonth": lambda t: t.day - 1, "getDate": lambda t: t.day, "getDayOfWeek": lambda t: t.isoweekday() % 7,
        "getHours": lambda t: t.hour, "getMinutes": lambda t: t.minute, "getSeconds": lambda t: t.second,
        "getMilliseconds": lambda t: t.microsecond // 1000,
    }  # fmt: skip
    for name, get in getters.items():
        declare(f"timestamp_to_{name}", f":timestamp:{name}(): int", lambda t, get=get: get(date_at(t)))
        declare(
            f"timestamp_to_{name}_with_tz", f":timestamp:{name}(string): int", lambda t, zone, get=get: get(date_at(t, zone))
        )
    for name, unit in (("getHours", 3600 * SECOND), ("getMinutes", 60 * SECOND), ("getSeconds", SECOND)):
        declare(f"duration_to_{name}", f":duration:{name}(): int", lambda d, unit=unit: truncate(int(d), unit))
    declare("duration_to_milliseconds", ":duration:getMilliseconds(): int", lambda d: truncate(int(d), 10**6))


def _declare_strings() -> None:
    declare("string_char_at_int", ":string:charAt(int): string", char_at)
    declare("string_index_of_string", ":string:indexOf(string): int", index_of)
    declare("string_index_of_string_int", ":string:indexOf(string, int): int", index_of)
    declare("string_last_index_of_string", ":string:lastIndexOf(string): int", last_index_of)
    declare("string_last_index_of_string_int", ":string:lastIndexOf(string, int): int", last_index_of)
    declare("string_lower_ascii", ":string:lowerAscii(): string", lambda text: text.translate(TO_LOWER))
    declare("string_upper_ascii", ":string:upperAscii(): string", lambda text: text.translate(TO_UPPER))
    declare("string_replace_string_string", ":string:replace(string, string): string", replace_text, takes_meter=True)
    declare("string_replace_string_string_int", ":string:replace(string, string, int): string", replace_text, takes_meter=True)
    declare("string_split_string", ":string:split(string): list(string)", split_text, takes_meter=True)
    declare("string_split_string_int", ":string:split(string, int): list(string)", split_text, takes_meter=True)
    declare("string_substring_int", ":string:substring(int): string", substring)
    declare("string_substring_int_int", ":string:substring(int, int): string", substring)
    declare("string_trim", ":string:trim(): string", lambda text: text.strip(SPACES))
    declare("string_format", ":string:format(list(dyn)): string", format_text, takes_meter=True)
    declare("strings_quote", "strings.quote(string): string", quote)
    declare("list_join", ":list(string):join(): string", join_texts, takes_meter=True)
    declare("list_join_string", ":list(string):join(string): string", join_texts, takes_meter=True)


def _declare_lists() -> None:
    for kind in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"):
        declare(f"list_{kind}_is_sorted_bool", f":list({kind}):isSorted(): bool", _is_sorted, takes_meter=True)
        declare(f"list_{kind}_max_{kind}", f":list({kind}):max(): {kind}", _list_max, takes_meter=True)
        declare(f"list_{kind}_min_{kind}", f":list({kind}):min(): {kind}", _list_min, takes_meter=True)
        declare(f"list_{kind}_sort", f":list({kind}):sort(): list({kind})", _sort, takes_meter=True)
        signature = f":list(A):@sortByAssociatedKeys(list({kind})): list(A)"
        declare(f"list_{kind}_sortByAssociatedKeys", signature, _sort_by_keys, takes_meter=True)
    for kind, convert in (("int", check_int), ("uint", to_unsigned), ("double", float), ("duration", to_duration)):
        declare(f"list_{kind}_sum_{kind}", f":list({kind}):sum(): {kind}", _sum_of(convert), takes_meter=True)
    declare("list_a_index_of_int", ":list(A):indexOf(A): int", _index_of_item, takes_meter=True)
    declare("list_a_last_index_of_int", ":list(A):lastIndexOf(A): int", _last_index_of_item, takes_meter=True)
    declare("list_slice", ":list(A):slice(int, int): list(A)", _slice_list)
    declare("list_flatten", ":list(list(A)):flatten(): list(A)", _flatten, takes_meter=True)
    declare("list_flatten_int", ":list(dyn):flatten(int): list(dyn)", _flatten, takes_meter=True)
    declare("lists_range", "lists.range(int): list(int)", _integer_range, takes_meter=True)
    declare("list_reverse", ":list(A):reverse(): list(A)", lambda items: items[::-1])
    declare("list_distinct", ":list(A):distinct(): list(A)", _distinct_items, takes_meter=True)
    declare("list_sets_contains_list", "sets.contains(list(A), list(A)): bool", _contains_all, takes_meter=True)
    declare("list_sets_equivalent_list", "sets.equivalent(list(A), list(A)): bool", _sets_are_equivalent, takes_meter=True)
    declare("list_sets_intersects_list", "sets.intersects(list(A), list(A)): bool", _sets_intersect, takes_meter=True)
    declare("@mapInsert_map_key_value", "cel.@mapInsert(map(A, B), A, B): map(A, B)", _insert, takes_meter=True)
    declare("@mapInsert_map_map", "cel.@mapInsert(map(A, B), map(A, B)): map(A, B)", _insert_map, takes_meter=True)


def _declare_optionals() -> None:
    declare("optional_of", "optional.of(A): optional_type(A)", Optional)
    declare(
        "optional_ofNonZeroValue",
        "optional.ofNonZeroValue(A): optional_type(A)",
        lambda a: ABSENT if _is_zero(a) else Optional(a),
    )
    declare("optional_none", "optional.none(): optional_type(A)", lambda: ABSENT)
    declare("optional_value", ":optional_type(A):value(): A", _value_of)
    declare("optional_hasValue", ":optional_type(A):hasValue(): bool", lambda a: a is not ABSENT)
    declare("list_first", ":list(A):first(): optional_type(A)", lambda items: Optional(items[0]) if items else ABSENT)
    declare("list_last", ":list(A):last(): optional_type(A)", lambda items: Optional(items[-1]) if items else ABSENT)
    declare("optional_unwrap", "optional.unwrap(list(optional_type(A))): list(A)", _unwrap, takes_meter=True)
    declare("optional_unwrapOpt", ":list(optional_type(A)):unwrapOpt(): list(A)", _unwrap, takes_meter=True)
    declare("optional_or_optional", ":optional_type(A):or(optional_type(A)): optional_type(A)", None)
    declare("optional_orValue_value", ":optional_type(A):orValue(A): A", None)
    for container, key, value in (("list(A)", "int", "A"), ("map(A, B)", "A", "B")):
        name = container.partition("(")[0]
        declare(f"{name}_optindex", f"_[?_]({container}, {key}): optional_type({value})", _optional_index)
        declare(
            f"optional_{name}_optindex", f"_[?_](optional_type({container}), {key}): optional_type({value})", _optional_index
        )
        declare(f"optional_{name}_index", f"_[_](optional_type({container}), {key}): optional_type({value})", _optional_index)


_declare_operators()
_declare_standard()
_declare_strings()
_declare_lists()
_declare_optionals()
