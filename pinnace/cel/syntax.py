"""Parse expressions into trees.

The parser is that of cel-cpp (package cel-expr-python): its grammar and its messages are those of cel-go, which Kubernetes
uses. It limits the depth of an expression to 32 levels (cel-go: 250). The macros of the standard are expanded by it; those of
two variables, `optMap` and `optFlatMap` are expanded here.

Source: https://github.com/cel-expr/cel-spec/blob/master/proto/cel/expr/syntax.proto
"""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any

from pinnace.cel.types import Type, Uint

MAX_LENGTH = 100_000
"""Maximum length of an expression in characters, as in cel-go."""
RESULT = "@result"
"""The variable in which a comprehension accumulates. No identifier of a user can have this name."""
_HIDDEN = (("optMap", "oqtMap"), ("optFlatMap", "oqtFlatMap"))
"""The parser's own macros copy their target: a chain of 30 has 2^30 nodes. So it does not see them."""
_DEPTH = re.compile(
    r"(ERROR: <input>:4294967295:0: )?(Expression recursion limit exceeded|Exceeded max recursion depth).*", re.DOTALL
)
_TRANSFORMS = frozenset({"transformList", "transformMap", "transformMapEntry"})
_QUANTIFIERS = frozenset({"all", "exists", "exists_one", "existsOne"})


class CompileError(Exception):
    """The text lists what is wrong and where, as cel-go does: "ERROR: <input>:1:5: undefined field 'nope'\\n | self..." """


class Node:
    """A node of an expression. `type`: its type; `overloads`: the functions that a call may be. Both are set by the checker."""

    __slots__ = ("id", "overloads", "type")
    type: Type
    overloads: tuple[Any, ...]

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.overloads = ()


class Literal(Node):
    __slots__ = ("value",)

    def __init__(self, id_: int, value: Any) -> None:
        super().__init__(id_)
        self.value = value


class Ident(Node):
    __slots__ = ("name",)

    def __init__(self, id_: int, name: str) -> None:
        super().__init__(id_)
        self.name = name


class Select(Node):
    """`operand.field`, or with `test` `has(operand.field)`."""

    __slots__ = ("field", "operand", "test")

    def __init__(self, id_: int, operand: Node, field: str, test: bool) -> None:
        super().__init__(id_)
        self.operand, self.field, self.test = operand, field, test


class Call(Node):
    __slots__ = ("args", "function", "target")

    def __init__(self, id_: int, function: str, target: Node | None, args: list[Node]) -> None:
        super().__init__(id_)
        self.function, self.target, self.args = function, target, args


class ListNode(Node):
    __slots__ = ("elements", "optional")

    def __init__(self, id_: int, elements: list[Node], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(id_)
        self.elements, self.optional = elements, optional


class MapNode(Node):
    """`entries`: key, value, whether the entry is optional."""

    __slots__ = ("entries",)

    def __init__(self, id_: int, entries: list[tuple[Node, Node, bool]]) -> None:
        super().__init__(id_)
        self.entries = entries


class StructNode(Node):
    """`fields`: id, name, value, whether the field is optional."""

    __slots__ = ("fields", "name")

    def __init__(self, id_: int, name: str, fields: list[tuple[int, str, Node, bool]]) -> None:
        super().__init__(id_)
        self.name, self.fields = name, fields


class Comprehension(Node):
    """`condition` and `step` are evaluated for each element of `range`, then `result`. `var2` is "" if there is one
    variable."""

    __slots__ = ("accumulator", "condition", "init", "range", "result", "step", "var", "var2")

    def __init__(
        self,
        id_: int,
        range_: Node,
        var: str,
        var2: str,
        accumulator: str,
        init: Node,
        condition: Node,
        step: Node,
        result: Node,
    ) -> None:
        super().__init__(id_)
        self.range, self.var, self.var2, self.accumulator = range_, var, var2, accumulator
        self.init, self.condition, self.step, self.result = init, condition, step, result


class Source:
    """The text of an expression, and the position of each of its nodes. The positions are decoded for the first error."""

    def __init__(self, text: str, positions: Sequence[bytes]) -> None:
        self.text = text
        self._encoded = positions
        self._copied: dict[int, int] = {}

    def copy_position(self, node_id: int, source_id: int) -> None:
        """Give a node of a macro the position of another node."""
        self._copied[node_id] = source_id

    @cached_property
    def _positions(self) -> dict[int, int]:
        entries = map(_decode_fields, self._encoded)
        return {entry[1][0]: entry.get(2, (0,))[0] for entry in entries}

    def position(self, node_id: int) -> int:
        """Return the position of a node in characters."""
        while node_id in self._copied:
            node_id = self._copied[node_id]
        return self._positions.get(node_id, 0)

    def format_error(self, node_id: int, message: str) -> str:
        """Return one error as cel-go shows it: the position, the line, and a mark below the position."""
        offset = min(self.position(node_id), len(self.text))
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        line = self.text[start : end if end >= 0 else len(self.text)].replace("\t", " ")
        dots = "".join("." if char.isascii() else "\uff0e" for char in line[: offset - start])
        number = self.text.count("\n", 0, offset) + 1
        mark = "^" if offset - start >= len(line) or line[offset - start].isascii() else "\uff3e"
        return f"ERROR: <input>:{number}:{offset - start + 1}: {message}\n | {line}\n | {dots}{mark}"


def parse(text: str) -> tuple[Node, Source]:
    """Return the tree of an expression. Raises CompileError."""
    if len(text) > MAX_LENGTH:
        raise CompileError(
            f"ERROR: <input>:-1:0: expression code point size exceeds limit: size: {len(text)}, limit {MAX_LENGTH}"
        )
    try:
        serialized = _create_environment().compile(_hide_macros(text), disable_check=True).serialize()
    except (RuntimeError, UnicodeError) as error:
        raise CompileError(_show_macros(_clean_message(str(error)))) from None
    parsed = _decode_fields(_decode_fields(serialized)[2][0])
    source = Source(text, _decode_fields(parsed[3][0]).get(4, ()))
    node = _Decoder(source).decode(parsed[2][0])
    return node, source


@cache
def _create_environment() -> Any:
    from cel_expr_python import cel  # imported when the first expression is: it needs 18 MB and 50 ms
    from cel_expr_python.ext import ext_optional

    return cel.NewEnv(extensions=[ext_optional.ExtOptional()])


def _hide_macros(text: str) -> str:
    for name, hidden in _HIDDEN:
        text = text.replace(name, hidden)
    return text


def _show_macros(text: str) -> str:
    for name, hidden in _HIDDEN:
        text = text.replace(hidden, name)
    return text


def _clean_message(text: str) -> str:
    text = re.sub(r"^(INVALID_ARGUMENT|CANCELLED): ", "", text)
    text = re.sub(r" \[(INVALID_ARGUMENT|CANCELLED)\]$", "", text)
    return _DEPTH.sub("ERROR: <input>:-1:0: expression recursion limit exceeded: 32", text)


def _decode_fields(data: bytes) -> dict[int, list[Any]]:
    """Return the fields of a protobuf message: integers, or bytes."""
    fields: dict[int, list[Any]] = {}
    at, end = 0, len(data)
    while at < end:
        key = data[at]
        at += 1
        if key >= 0x80:
            key, at = _decode_varint(data, at - 1)
        wire_type = key & 7
        value: Any
        if wire_type == 0:
            value, at = _decode_varint(data, at)
        elif wire_type == 2:
            size = data[at]
            at += 1
            if size >= 0x80:
                size, at = _decode_varint(data, at - 1)
            value, at = data[at : at + size], at + size
        else:
            value, at = data[at : at + 8], at + 8
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _decode_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


class _Decoder:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._next_id = 1 << 40  # the parser's ids are smaller
        self._decoders: dict[int, Callable[[int, dict[int, list[Any]]], Node]] = {
            3: self._decode_literal, 4: self._decode_ident, 5: self._decode_select, 6: self._decode_call, 7: self._decode_list,
            8: self._decode_struct, 9: self._decode_comprehension,
        }  # fmt: skip

    def decode(self, data: bytes) -> Node:
        fields = _decode_fields(data)
        node_id = _to_signed(fields.pop(2, [0])[0])
        (kind, (content,)), *_ = fields.items()
        return self._decoders[kind](node_id, _decode_fields(content))

    def _decode_literal(self, node_id: int, fields: dict[int, list[Any]]) -> Node:
        ((kind, (value,)),) = fields.items()
        if kind == 1:
            value = None
        elif kind == 2:
            value = bool(value)
        elif kind == 3:
            value = _to_signed(value)
        elif kind == 4:
            value = Uint(value)
        elif kind == 5:
            (value,) = struct.unpack("<d", value)
        elif kind == 6:
            value = _show_macros(value.decode(errors="replace"))
        return Literal(node_id, value)

    def _decode_ident(self, node_id: int, fields: dict[int, list[Any]]) -> Node:
        return Ident(node_id, _show_macros(fields[1][0].decode()))

    def _decode_select(self, node_id: int, fields: dict[int, list[Any]]) -> Node:
        return Select(node_id, self.decode(fields[1][0]), _show_macros(fields[2][0].decode()), bool(fields.get(3)))

    def _decode_call(self, node_id: int, fields: dict[int, list[Any]]) -> Node:
        function = _show_macros(fields[2][0].decode())
        target = self.decode(fields[1][0]) if 1 in fields else None
        args = [self.decode(arg) for arg in fields.get(3, ())]
        if target is not None and len(args) >= 2:
            return self._expand_macro(node_id, function, target, args)
        return Call(node_id, function, target, args)

    def _decode_list(self, node_id: int, fields: dict[int, list[Any]]) -> Node:
        optional = set[int]()
        for packed in fields.get(2, ()):
            optional.update([packed] if isinstance(packed, int) else _decode_packed(packed))
        return ListNode(node_id, [self.decode(element) for element in fields.get(1, ())], frozenset(optional))

    def _decode_struct(self, node_id: int, fields: dict[int, list[Any]]) -> Node:
        entries = [_decode_fields(entry) for entry in fields.get(2, ())]
        if 1 not in fields:
            return MapNode(node_id, [(self.decode(e[3][0]), self.decode(e[4][0]), bool(e.get(5))) for e in entries])
        decoded = [(e[1][0], e[2][0].decode(), self.decode(e[4][0]), bool(e.get(5))) for e in entries]
        return StructNode(node_id, fields[1][0].decode(), decoded)

    def _decode_comprehension(self, node_id: int, fields: dict[int, list[Any]]) -> Node:
        range_, init, condition, step, result = (self.decode(fields[number][0]) for number in (2, 4, 5, 6, 7))
        var, accumulator = fields[1][0].decode(), fields[3][0].decode()
        var2 = fields[8][0].decode() if 8 in fields else ""
        return Comprehension(node_id, range_, var, var2, accumulator, init, condition, step, result)

    # Macros: https://pkg.go.dev/github.com/google/cel-go/ext#TwoVarComprehensions

    def _new_id(self, near: int) -> int:
        self._next_id += 1
        self._source.copy_position(self._next_id, near)
        return self._next_id

    def _expand_macro(self, node_id: int, function: str, target: Node, args: list[Node]) -> Node:
        def new_call(name: str, *operands: Node) -> Node:
            return Call(self._new_id(node_id), name, None, list(operands))

        def literal(value: Any) -> Node:
            return Literal(self._new_id(node_id), value)

        def result() -> Node:
            return Ident(self._new_id(node_id), RESULT)

        if len(args) == 2 and function in ("optMap", "optFlatMap"):
            return self._expand_optional(node_id, function, target, args)
        if len(args) == 2 and function == "sortBy":
            return self._expand_sort(node_id, target, args)
        if function not in (_QUANTIFIERS | _TRANSFORMS if len(args) == 3 else _TRANSFORMS if len(args) == 4 else ()):
            return Call(node_id, function, target, args)
        var, var2 = (self._variable_name(arg, "argument must be a simple name") for arg in args[:2])
        if var == var2:
            raise CompileError(self._source.format_error(args[1].id, f"duplicate variable name: {var}"))
        body, condition, answer = args[-1], literal(True), result()
        init: Node
        if function == "all":
            init, condition = literal(True), new_call("@not_strictly_false", result())
            step = new_call("_&&_", result(), body)
        elif function == "exists":
            init, condition = literal(False), new_call("@not_strictly_false", new_call("!_", result()))
            step = new_call("_||_", result(), body)
        elif function in ("exists_one", "existsOne"):
            init = literal(0)
            step = new_call("_?_:_", body, new_call("_+_", result(), literal(1)), result())
            answer = new_call("_==_", result(), literal(1))
        elif function == "transformList":
            init = ListNode(self._new_id(node_id), [])
            step = new_call("_+_", result(), ListNode(self._new_id(node_id), [body]))
        else:
            init = MapNode(self._new_id(node_id), [])
            pair = [Ident(self._new_id(node_id), var), body] if function == "transformMap" else [body]
            step = new_call("cel.@mapInsert", result(), *pair)
        if len(args) == 4:
            step = new_call("_?_:_", args[2], step, result())
        return Comprehension(node_id, target, var, var2, RESULT, init, condition, step, answer)

    def _expand_optional(self, node_id: int, function: str, target: Node, args: list[Node]) -> Node:
        var = self._variable_name(args[0], f"{function}() variable name must be a simple identifier")
        new = self._new_id
        # The target is evaluated once, into a variable of its own; cel-go evaluates it twice.
        held = f"@optional{new(node_id)}"
        unwrapped = Call(new(node_id), "value", Ident(new(node_id), held), [])
        bound: Node = self._bind(node_id, var, unwrapped, args[1])
        if function == "optMap":
            bound = Call(new(node_id), "optional.of", None, [bound])
        present = Call(new(node_id), "hasValue", Ident(new(node_id), held), [])
        absent = Call(new(node_id), "optional.none", None, [])
        return self._bind(node_id, held, target, Call(new(node_id), "_?_:_", None, [present, bound, absent]))

    def _expand_sort(self, node_id: int, target: Node, args: list[Node]) -> Node:
        new = self._new_id
        var = self._variable_name(args[0], "argument is not an identifier")
        held = f"@sorted{new(node_id)}"
        key = ListNode(new(node_id), [args[1]])
        step = Call(new(node_id), "_+_", None, [Ident(new(node_id), RESULT), key])
        always, result = Literal(new(node_id), True), Ident(new(node_id), RESULT)
        empty = ListNode(new(node_id), [])
        keys = Comprehension(new(node_id), Ident(new(node_id), held), var, "", RESULT, empty, always, step, result)
        call = Call(new(node_id), "@sortByAssociatedKeys", Ident(new(node_id), held), [keys])
        return self._bind(node_id, held, target, call)

    def _bind(self, node_id: int, name: str, value: Node, body: Node) -> Node:
        new = self._new_id
        stop, same = Literal(new(node_id), False), Ident(new(node_id), name)
        return Comprehension(new(node_id), ListNode(new(node_id), []), "#unused", "", name, value, stop, same, body)

    def _variable_name(self, node: Node, message: str) -> str:
        if not isinstance(node, Ident):
            raise CompileError(self._source.format_error(node.id, message))
        return node.name


def _decode_packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _decode_varint(data, at)
        yield value


def qualified_name(node: Node) -> str | None:
    """Return "a.b.c" for selections of an identifier, else None."""
    names = []
    while isinstance(node, Select) and not node.test:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(names)])
