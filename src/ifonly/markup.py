"""Small pieces of HTML by which notebooks show objects; everything in them is escaped."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a title; nothing about its looks is said, so that it looks as the notebook does.

    >>> html_table("a < b", ["name"], [["x & y"]])
    '<table><caption>a &lt; b</caption><tr><th>name</th></tr><tr><td>x &amp; y</td></tr></table>'
    """
    lines = [_row("th", header), *(_row("td", row) for row in rows)]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def html_text(text: str) -> str:
    """A text of lines, the first of which says the most.

    >>> html_text("done\\n  1 < 2")
    '<strong>done</strong><pre style="white-space: pre-wrap">  1 &lt; 2</pre>'
    """
    first, _, rest = text.partition("\n")
    below = f'<pre style="white-space: pre-wrap">{escape(rest)}</pre>' if rest else ""
    return f"<strong>{escape(first)}</strong>{below}"


def _row(cell: str, values: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{cell}>{escape(str(value))}</{cell}>' for value in values)}</tr>"
