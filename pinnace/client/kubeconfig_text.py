"""Edits the text of a kubeconfig: everything that is not edited keeps its bytes.

    text -> positions of the YAML nodes -> one span is replaced -> text, whose data is compared with the intended data

Lists may have block style or flow style (JSON), and may be null or missing. Line ends are kept. The comments of other entries,
their order and their quoting stay, because only the span of the edited entry is replaced. A comment within a replaced entry is
lost.

The positions do not describe every document: anchors, tags and explicit keys (`? clusters`) are examples. If the data of the
edited text is not what was intended, the whole document is written again as block YAML. Then its data is correct, but comments
and the style of all entries are lost.

Source: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pinnace.api import documents
from pinnace.client.kubeconfig import CURRENT, Document, Kind, KubeconfigSyntaxError, list_entries

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BOM = "\ufeff"


class _KubeconfigDumper(yaml.SafeDumper):
    """Quotes text that Kubernetes' tools would read as something else, such as `y`, and has no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        style = None if documents.is_string_unquoted(data) else "'"
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", data, style=style)
        return node


_KubeconfigDumper.add_representer(str, _KubeconfigDumper.text)


def _dump_yaml(value: Any) -> str:
    text: str = yaml.dump(value, Dumper=_KubeconfigDumper, sort_keys=False, width=1 << 16)
    return text


def parse_kubeconfig(text: str) -> Document:
    """Return the data. An empty text is an empty kubeconfig, as for kubectl. Raises KubeconfigSyntaxError, including for two
    entries of the same name."""
    try:
        result = documents.load_plain_documents(text.removeprefix(_BOM))
    except documents.DocumentError as error:
        raise KubeconfigSyntaxError(error.line, str(error)) from None
    if len(result) > 1:
        raise KubeconfigSyntaxError(1, "several documents in one file")
    document = result[0] if result else {}
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        raise KubeconfigSyntaxError(1, "not a kubeconfig (kind: Config)")
    kinds: Sequence[Kind] = ("cluster", "user", "context")
    for kind in kinds:
        if not isinstance(document.get(f"{kind}s") or [], list):
            raise KubeconfigSyntaxError(1, f"{kind}s: not a list")
        names = [entry.get("name") for entry in list_entries(document, kind)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise KubeconfigSyntaxError(1, f'{kind}s: duplicate name "{twice}"')
    return document


class KubeconfigText:
    """A kubeconfig that is edited. `text` and `document` always correspond."""

    def __init__(self, text: str) -> None:
        """Raises KubeconfigSyntaxError."""
        self.document = parse_kubeconfig(text)
        self.text = text

    def put(self, kind: Kind, name: str, value: Mapping[str, Any]) -> None:
        """Add an entry at the end of its list, or replace the value of the entry of this name."""
        before = next((entry for entry in list_entries(self.document, kind) if entry.get("name") == name), None)
        entry = {**(before or {"name": name}), kind: dict(value)}
        if entry == before:
            return
        items = list(self.document.get(f"{kind}s") or [])
        items = [entry if item is before else item for item in items] if before else [*items, entry]
        self._apply_edit({**self.document, f"{kind}s": items}, lambda text: _put_item(text, f"{kind}s", entry))

    def remove(self, kind: Kind, name: str) -> None:
        """Remove the entry of this name, if there is one."""
        items = list(self.document.get(f"{kind}s") or [])
        rest = [item for item in items if not (isinstance(item, dict) and item.get("name") == name)]
        if rest != items:
            self._apply_edit({**self.document, f"{kind}s": rest}, lambda text: _remove_item(text, f"{kind}s", name))

    def set_current(self, name: str | None) -> None:
        """Set the current context. None removes the field."""
        if self.document.get(CURRENT) == name and (name is not None or CURRENT not in self.document):
            return
        rest = {key: value for key, value in self.document.items() if key != CURRENT}
        if name is None:
            self._apply_edit(rest, lambda text: _remove_field(text, CURRENT))
        else:
            self._apply_edit({**self.document, CURRENT: name}, lambda text: _set_field(text, CURRENT, name))

    def _apply_edit(self, intended: Document, edit: Callable[[str], str]) -> None:
        bom = _BOM if self.text.startswith(_BOM) else ""
        try:
            text = bom + edit(self.text.removeprefix(_BOM))
            correct = parse_kubeconfig(text) == intended
        except (ValueError, yaml.YAMLError):  # a structure without positions
            correct = False
        if not correct:
            text = _dump_yaml(intended)
        self.text, self.document = text, intended


def _root_node(text: str) -> MappingNode | None:
    """Return the node of the document. None: the text has comments only. Raises ValueError."""
    root = yaml.compose(text, Loader=_LOADER)
    if root is None or isinstance(root, MappingNode):
        return root
    raise ValueError("not a mapping")


def _find_field(root: MappingNode, key: str) -> tuple[Node, Node] | None:
    return next(((name, value) for name, value in root.value if name.value == key), None)


def _entry_name(item: Node) -> str | None:
    result = _find_field(item, "name") if isinstance(item, MappingNode) else None
    return result[1].value if result is not None and isinstance(result[1], ScalarNode) else None


def _put_item(text: str, key: str, entry: Mapping[str, Any]) -> str:
    root = _root_node(text)
    result = _find_field(root, key) if root is not None else None
    if root is None or result is None:
        return _add_field(text, root, key, _dump_yaml([entry]), [entry])
    name, value = result
    if isinstance(value, SequenceNode) and value.value:
        item = next((item for item in value.value if _entry_name(item) == entry["name"]), None)
        if value.flow_style:
            if item is not None:
                return _splice_text(text, item.start_mark.index, item.end_mark.index, json.dumps(entry))
            at = _content_end(text, value.value[-1])
            return _splice_text(text, at, at, f", {json.dumps(entry)}")
        column = value.start_mark.column  # of the dashes
        lines = _indent_lines(_dump_yaml([entry]), column)
        if item is not None:
            return _replace_lines(text, *_item_span(text, item), lines)
        at = _line_end(text, _content_end(text, value.value[-1]))
        return _replace_lines(text, at, at, lines)
    end = _content_end(text, value)
    if root.flow_style:
        return _splice_text(text, value.start_mark.index, end, json.dumps([entry]))
    colon = text.index(":", name.end_mark.index) + 1
    lines = _indent_lines(_dump_yaml([entry]), root.start_mark.column)
    text = _splice_text(text, colon, end, "")
    at = _line_end(text, colon)
    return _replace_lines(text, at, at, lines)


def _remove_item(text: str, key: str, name: str) -> str:
    root = _root_node(text)
    result = _find_field(root, key) if root is not None else None
    if result is None or not isinstance(result[1], SequenceNode):
        raise ValueError(f"no list {key}")
    value, items = result[1], result[1].value
    index = next(index for index, item in enumerate(items) if _entry_name(item) == name)
    if value.flow_style:
        begin, end = items[index].start_mark.index, _content_end(text, items[index])
        if index:
            begin = _content_end(text, items[index - 1])
        elif len(items) > 1:
            end = items[1].start_mark.index
        return _splice_text(text, begin, end, "")
    begin, end = _item_span(text, items[index])
    if len(items) == 1:
        colon = text.index(":", result[0].end_mark.index) + 1
        return _splice_text(_splice_text(text, begin, end, ""), colon, colon, " []")
    return _splice_text(text, begin, end, "")


def _set_field(text: str, key: str, value: str) -> str:
    root = _root_node(text)
    result = _find_field(root, key) if root is not None else None
    if root is None or result is None:
        return _add_field(text, root, key, f" {_format_scalar(value)}\n", value)
    node = result[1]
    begin, end = node.start_mark.index, node.end_mark.index
    quoted = (
        json.dumps(value, ensure_ascii=False) if text[begin:end].startswith('"') or root.flow_style else _format_scalar(value)
    )
    return _splice_text(text, begin, end, quoted if text[begin - 1].isspace() or root.flow_style else f" {quoted}")


def _remove_field(text: str, key: str) -> str:
    root = _root_node(text)
    result = _find_field(root, key) if root is not None else None
    if root is None or result is None or root.flow_style:
        raise ValueError("not a line of its own")
    begin = result[0].start_mark.index
    return _splice_text(text, text.rfind("\n", 0, begin) + 1, _line_end(text, _content_end(text, result[1])), "")


def _add_field(text: str, root: MappingNode | None, key: str, block: str, value: Any) -> str:
    """Append a field to the document. `block`: its value in block style, as it follows the colon; `value`: its data."""
    if root is None:
        return _replace_lines(text, len(text), len(text), f"{key}:{_indent_below(block)}")
    if root.flow_style:
        at = root.start_mark.index + 1
        return _splice_text(text, at, at, f"{json.dumps(key)}: {json.dumps(value)}{', ' if root.value else ''}")
    at = _line_end(text, _content_end(text, root))
    return _replace_lines(text, at, at, _indent_lines(f"{key}:{_indent_below(block)}", root.start_mark.column))


def _indent_below(block: str) -> str:
    return block if block.startswith(" ") else f"\n{block}"


def _format_scalar(value: str) -> str:
    return _dump_yaml(value).removesuffix("\n...\n").removesuffix("\n")


def _indent_lines(lines: str, column: int) -> str:
    return "".join(" " * column + line for line in lines.splitlines(keepends=True))


def _splice_text(text: str, begin: int, end: int, new: str) -> str:
    return text[:begin] + new + text[end:]


def _replace_lines(text: str, begin: int, end: int, lines: str) -> str:
    """Replace whole lines. The new ones end as the first line of the text does. A missing line end before them is added."""
    ending = "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"
    separator = ending if begin and text[begin - 1] != "\n" else ""
    return _splice_text(text, begin, end, separator + lines.replace("\n", ending))


def _item_span(text: str, item: Node) -> tuple[int, int]:
    """Return the lines of an item of a block list, from its dash to the end of its content."""
    dash = text.rindex("-", 0, item.start_mark.index)
    return text.rfind("\n", 0, dash) + 1, _line_end(text, _content_end(text, item))


def _content_end(text: str, node: Node) -> int:
    """Return the end of a node's content. The end mark of a block collection lies behind the comments that follow it."""
    if isinstance(node, ScalarNode):
        end = node.end_mark.index
        return text.rfind("\n", 0, end) + 1 if node.style in ("|", ">") and end < len(text) else end
    if not isinstance(node, MappingNode | SequenceNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _content_end(text, last[1] if isinstance(last, tuple) else last)


def _line_end(text: str, index: int) -> int:
    """Return the beginning of the next line, or `index` if a line begins there."""
    if index and text[index - 1] == "\n":
        return index
    at = text.find("\n", index)
    return at + 1 if at >= 0 else len(text)
