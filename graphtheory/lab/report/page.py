"""A page in one file, without scripts, fonts or pictures from elsewhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import PackageLoader

from graphtheory.disk import replace_file
from graphtheory.lab import plot
from graphtheory.lab.bench.rows import Environment, Table, pairs

_LOADER = PackageLoader("graphtheory.lab.report", "assets")
TEMPLATES = Templates(loader=_LOADER, autoescape=True, keep_trailing_newline=True)
CAPTIONS: dict[str, str] = json.loads(TEMPLATES.get_template("captions.json").render())


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
    # What `assets/page.html` shows: kind, content and caption.
    _parts: list[tuple[str, Any, str]] = field(default_factory=list, init=False, repr=False)

    def section(self, title: str) -> Page:
        """Begin a section with a heading; returns the page."""
        self._parts.append(("section", title, ""))
        return self

    def paragraph(self, text: str) -> None:
        """Add a paragraph of text."""
        self._parts.append(("paragraph", text, ""))

    def code(self, text: str) -> None:
        """Add a block of code to copy."""
        self._parts.append(("code", text, ""))

    def table(self, table: Table) -> None:
        """Add a table, with its title above and its note below; a click on a heading sorts."""
        self._parts.append(("table", table, ""))

    def folded(self, table: Table) -> None:
        """Add a long table behind its title, which a click opens."""
        self._parts.append(("folded", table, ""))

    def picture(self, figure: Any, caption: str) -> None:
        """Add a figure of `graphtheory.lab.plot`; the caption is also what a screen reader says."""
        image = base64.b64encode(plot.svg(figure).encode()).decode()
        self._parts.append(("picture", image, caption))

    def how_to_reproduce(
        self, command: str, here: Environment, setting: Iterable[tuple[str, object]] = ()
    ) -> None:
        """Add the last section: the command, its settings, the machine and the versions."""
        where = [("device", here.device), ("commit", here.commit or "not from a checkout")]
        self.section("How to reproduce").code(command)
        self.table(pairs("", [*setting, *where, *here.versions.items()]))

    def html(self) -> str:
        """Write the whole document as text."""
        return TEMPLATES.get_template("page.html").render(page=self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document into a file."""
        replace_file(Path(path), self.html().encode())
