"""Tables: columns padded to their widest cell, three spaces apart, nothing after the last cell."""

from collections.abc import Sequence

GAP = "   "


class Table:
    """Renders rows in one or several goes. Later rows keep the widths of the earlier ones (they only grow), so that what a
    watch appends stays aligned as well as can be known."""

    def __init__(self, headers: Sequence[str], *, show_headers: bool = True) -> None:
        self._headers = tuple(headers)
        self._show_headers = show_headers
        self._widths = [len(header) if show_headers else 0 for header in headers]

    def render(self, rows: Sequence[Sequence[str]]) -> str:
        """Lines, each with its newline; the headers stand before the first rows."""
        lines = [tuple(one_line(cell) for cell in row) for row in rows]
        if self._show_headers:
            lines.insert(0, self._headers)
            self._show_headers = False
        for line in lines:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, line, strict=True)]
        return "".join(self._line(line) + "\n" for line in lines)

    def _line(self, cells: Sequence[str]) -> str:
        return GAP.join(cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)).rstrip()


def one_line(text: str) -> str:
    """Text of others, fit for a cell: it neither breaks the line nor sends the terminal commands."""
    return text if text.isprintable() else "".join(filter(str.isprintable, " ".join(text.split())))
