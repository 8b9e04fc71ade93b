"""A page in one file, without scripts, fonts or pictures from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from graphtheory.disk import replace_file
from graphtheory.lab import plot
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.bench.table import Table, pairs


def asset(name: str) -> str:
    """Read the text of a file in `assets/`."""
    return (files("graphtheory.lab.report") / "assets" / name).read_text(encoding="utf-8")


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
        text = escape(caption)
        self._parts.append(
            f'<figure><img alt="{text}" src="data:image/svg+xml;base64,{image}">'
            f"<figcaption>{text}</figcaption></figure>"
        )

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
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>\n{asset('page.css')}</style>\n</head>\n<body>\n"
            f'<h1>{escape(self.title)}</h1>\n<p class="lead">{escape(self.lead)}</p>\n'
            + "\n".join(self._parts)
            + f"\n<script>\n{asset('sort.js')}</script>\n</body>\n</html>\n"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document into a file."""
        replace_file(Path(path), self.html().encode())


def _table(table: Table) -> str:
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    head = _cells("th", table.columns, table.words) if any(table.columns) else ""
    body = "".join(f"<tr>{_cells('td', row, table.words)}</tr>" for row in table.rows)
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    shown = f"<table>{caption}{top}<tbody>{body}</tbody></table>"
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f'<div class="scroll">{shown}</div>{note}'


def _cells(tag: str, texts: Sequence[str], words: int) -> str:
    return "".join(
        f"<{tag}{' class=' + chr(34) + 'word' + chr(34) if i < words else ''}>{escape(t)}</{tag}>"
        for i, t in enumerate(texts)
    )
