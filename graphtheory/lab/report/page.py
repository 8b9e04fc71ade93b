"""A page in one file, without scripts, fonts or pictures from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any

from graphtheory.disk import replace_file
from graphtheory.lab import plot
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.bench.table import Table, pairs


def asset(name: str, **values: str) -> str:
    """Read the text of a file in `assets/` and fill in its $names."""
    text = (files("graphtheory.lab.report") / "assets" / name).read_text(encoding="utf-8")
    return Template(text).substitute(values) if values else text


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
        """Begin a section with a heading; returns the page."""
        self._parts.append(f"<h2>{escape(title)}</h2>")
        return self

    def paragraph(self, text: str) -> None:
        """Add a paragraph of text."""
        self._parts.append(f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        """Add a block of code to copy."""
        self._parts.append(f"<pre><code>{escape(text)}</code></pre>")

    def table(self, table: Table) -> None:
        """Add a table, with its title above and its note below; a click on a heading sorts."""
        self._parts.append(_table(table))

    def folded(self, table: Table) -> None:
        """Add a long table behind its title, which a click opens."""
        shown = _table(replace(table, title=""))
        self._parts.append(f"<details><summary>{escape(table.title)}</summary>{shown}</details>")

    def picture(self, figure: Any, caption: str) -> None:
        """Add a figure of `graphtheory.lab.plot`; the caption is also what a screen reader says."""
        image = base64.b64encode(plot.svg(figure).encode()).decode()
        shown = f'<img alt="{escape(caption)}" src="data:image/svg+xml;base64,{image}">'
        self.drawing(shown, caption)

    def drawing(self, svg: str, caption: str) -> None:
        """Add an SVG element as it is, whose titles a browser shows under the pointer."""
        self._parts.append(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>")

    def how_to_reproduce(
        self, command: str, here: Environment, setting: Iterable[tuple[str, object]] = ()
    ) -> None:
        """Add the last section: the command, its settings, the machine and the versions."""
        where = [("device", here.device), ("commit", here.commit or "not from a checkout")]
        self.section("How to reproduce").code(command)
        self.table(pairs("", [*setting, *where, *here.versions.items()]))

    def html(self) -> str:
        """Write the whole document as text."""
        return asset(
            "page.html", title=escape(self.title), lead=escape(self.lead), style=asset("page.css"),
            parts="\n".join(self._parts), script=asset("sort.js"),
        )  # fmt: skip

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document into a file."""
        replace_file(Path(path), self.html().encode())


def _table(table: Table) -> str:
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    head = f"<thead>{_row('th', table.columns, table)}</thead>" if any(table.columns) else ""
    body = "".join(_row("td", row, table) for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    shown = f"<table>{caption}{head}<tbody>{body}</tbody></table>"
    return f'<div class="scroll">{shown}</div>{note}'


def _row(tag: str, texts: Sequence[str], table: Table) -> str:
    kinds = [' class="word"'] * table.words + [""] * len(texts)
    cells = (f"<{tag}{kind}>{escape(t)}</{tag}>" for kind, t in zip(kinds, texts, strict=False))
    return f"<tr>{''.join(cells)}</tr>"
