"""The script that sorts the tables of a page, run on a stand-in for a browser's table."""

import json

import pytest

from graphtheory.lab.report.page import TEMPLATES, Page, Table
from tests.lab.report.conftest import printed_by_node

STAND_IN = """
class Element {
  constructor(text) { this.childNodes = text === undefined ? [] : [text]; this.attributes = {}; }
  get textContent() { return this.childNodes.map((c) => c.textContent ?? c).join(""); }
  append(...nodes) { this.childNodes.push(...nodes); }
  setAttribute(name, value) { this.attributes[name] = value; }
  getAttribute(name) { return this.attributes[name] ?? null; }
  addEventListener(name, act) { this[name] = act; }
}
const row = (cells) => ({ dataset: {}, cells: cells.map((text) => new Element(text)) });
const heads = given.columns.map((name, i) => {
  const head = new Element(name);
  head.className = i < given.words ? "word" : "";
  const append = head.append;
  head.append = (button) => { head.childNodes = [button]; };
  return head;
});
const body = { rows: given.rows.map(row), append(...rows) { this.rows = rows; } };
const table = { tHead: { rows: [{ cells: heads }] }, tBodies: [body] };
globalThis.document = {
  querySelectorAll: () => [table, { tHead: null }], createElement: () => new Element(),
};
"""
SORT = TEMPLATES.get_template("sort.js").render()
ROWS = [
    ("gt", "82.99 ± 0.71", "138,397", "3 of 10", "no"),
    ("gat", "9.10 ± 9.00", "1,000", "10 of 10", "ahead"),
    ("m10", "-", "64", "-", "behind"),
    ("m9", "-5.5", "7.5e3", "0 of 10", "no"),
]
COLUMNS = ("model", "test mean ± std", "params", "seeds ahead", "differ (95 %)")


def clicked(column: int, times: int) -> tuple[list[str], list[str]]:
    """First column of the rows, and aria-sort of the headings, after some clicks."""
    given = json.dumps({"columns": COLUMNS, "rows": ROWS, "words": 1})
    click = f"heads[{column}].childNodes[0].click();" * times
    found = (
        "[body.rows.map((r) => r.cells[0].textContent),"
        ' heads.map((h) => h.getAttribute("aria-sort"))]'
    )
    made = f"const given = {given};{STAND_IN}{SORT}{click}"
    return printed_by_node(f"{made}console.log(JSON.stringify({found}))")


@pytest.mark.parametrize(("column", "once", "twice"), [
    (0, "gat gt m9 m10", "m10 m9 gt gat"),
    (1, "gt gat m9 m10", "m9 gat gt m10"),  # by the mean; what is none stays last
    (2, "gt m9 gat m10", "m10 gat m9 gt"),
    (3, "gat gt m9 m10", "m9 gt gat m10"),
    (4, "gt m9 m10 gat", "gat m10 gt m9"),
])  # fmt: skip
def test_a_click_sorts_and_the_third_restores(column: int, once: str, twice: str) -> None:
    first = "ascending" if column == 0 else "descending"
    order, sorts = clicked(column, 1)
    assert order == once.split()
    assert sorts == [first if i == column else "none" for i in range(5)]
    order, sorts = clicked(column, 2)
    assert order == twice.split() and sorts[column] != first
    order, sorts = clicked(column, 3)
    assert order == [row[0] for row in ROWS] and set(sorts) == {"none"}


def test_a_page_carries_the_script_once_and_folds_long_tables() -> None:
    page = Page("t", "l")
    table = Table("Every epoch", ("epoch", "loss"), [("1", "0.5"), ("2", "0.25")], words=0)
    page.table(table)
    page.folded(table)
    text = page.html()
    assert text.count("<script>") == 1 and "aria-sort" in text
    assert "<details><summary>Every epoch</summary>" in text and text.count("<caption>") == 1
