"""A page in one file: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from graphtheory import plot
from graphtheory.report.table import Table

_CSS = """
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 58rem; padding: 2.5rem 1.25rem 4rem; color: #1d1f21;
  background: #fff; font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; padding-top: .75rem;
  border-top: 1px solid #e3e5e8; }
.lead { font-size: 1.05rem; color: #4a4f55; margin: 0 0 1rem; }
p { margin: .5rem 0 .75rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; font-size: .92rem; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .3rem .8rem .3rem 0; text-align: right; vertical-align: top;
  border-bottom: 1px solid #eceef0; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { color: #4a4f55; font-weight: 600; border-bottom: 1.5px solid #9aa0a6; white-space: normal;
  vertical-align: bottom; }
th.word, td.word { text-align: left; white-space: normal; }
th.word, td.word:first-child { white-space: nowrap; }
tr:last-child td { border-bottom: 1px solid #9aa0a6; }
.note, figcaption { color: #5b6168; font-size: .88rem; }
figure { margin: 1rem 0 1.5rem; }
img { max-width: 100%; height: auto; display: block; }
pre { background: #f5f6f7; border: 1px solid #e3e5e8; border-radius: 4px; padding: .75rem 1rem;
  overflow-x: auto; font-size: .9rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media screen and (prefers-color-scheme: dark) {
  body { color: #e4e6e8; background: #16181b; }
  .lead, th, .note, figcaption { color: #a9afb6; }
  h2, th, td, pre { border-color: #3a3f45; }
  pre { background: #212428; }
  img { background: #fff; border-radius: 4px; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  h2 { break-after: avoid; }
  figure, tr, pre { break-inside: avoid; }
  .scroll { overflow: visible; }
}
"""


@dataclass
class Page:
    """A page that grows from top to bottom; every text is escaped.

    Args:
        title: Heading and title.
        lead: The one sentence below it that says what was found.

    Example:
        >>> page = Page("Karate", "Two clubs.")
        >>> page.section("Result").paragraph("a < b")
        >>> "<p>a &lt; b</p>" in page.html()
        True
    """

    title: str
    lead: str
    _parts: list[str] = field(default_factory=list, init=False, repr=False)

    def section(self, title: str) -> Page:
        """A heading; returns the page."""
        self._parts.append(f"<h2>{escape(title)}</h2>")
        return self

    def paragraph(self, text: str) -> None:
        """Running text."""
        self._parts.append(f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        """Something to copy."""
        self._parts.append(f"<pre><code>{escape(text)}</code></pre>")

    def table(self, table: Table) -> None:
        """A table, with its title above and its note below."""
        caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
        head = _cells("th", table.columns, table.words) if any(table.columns) else ""
        body = "".join(f"<tr>{_cells('td', row, table.words)}</tr>" for row in table.rows)
        top = f"<thead><tr>{head}</tr></thead>" if head else ""
        shown = f"<table>{caption}{top}<tbody>{body}</tbody></table>"
        note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
        self._parts.append(f'<div class="scroll">{shown}</div>{note}')

    def picture(self, figure: Any, caption: str) -> None:
        """A figure of `graphtheory.plot`; the caption is also what a screen reader says."""
        image = base64.b64encode(plot.svg(figure).encode()).decode()
        text = escape(caption)
        self._parts.append(
            f'<figure><img alt="{text}" src="data:image/svg+xml;base64,{image}">'
            f"<figcaption>{text}</figcaption></figure>"
        )

    def drawing(self, svg: str, caption: str) -> None:
        """An SVG element as it is, whose titles a browser shows under the pointer."""
        self._parts.append(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>")

    def html(self) -> str:
        """The whole document."""
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
            f'<h1>{escape(self.title)}</h1>\n<p class="lead">{escape(self.lead)}</p>\n'
            + "\n".join(self._parts)
            + "\n</body>\n</html>\n"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document."""
        Path(path).write_text(self.html(), encoding="utf-8")


def _cells(tag: str, texts: Sequence[str], words: int) -> str:
    return "".join(
        f"<{tag}{' class=' + chr(34) + 'word' + chr(34) if i < words else ''}>{escape(t)}</{tag}>"
        for i, t in enumerate(texts)
    )
