"""Tables of README.md and docs/ that are made from committed rows: compared with them, or written anew.

    python docs/check_numbers.py            # fails where a page and benchmarks/results differ
    python docs/check_numbers.py --write    # puts the numbers of the rows into the tables
    python docs/check_numbers.py --unmarked # lists results that no row stands for

A page has a table NAME below the line `<!-- table: NAME -->`. The table is made by a command that `TABLES` names, or of
its template: `docs/tables/` has a file for each page, with a heading `# NAME` above each table. README.md has no such
lines; its tables are known by their first row. In a template a comment before a number names the rows that it stands for:

    <!--= bench-cora; test accuracy; model=gt; % --> 83.0 ± 0.7

First the file without `.csv`, then the name of the row (`fig-7-3a exponent*`: every name that begins so), then
parameters that choose rows and options, in any order:

- `%`: times 100; `x 1e-6`: times that;
- `median q20 q80`: these columns in place of `value`; `value std`: with the standard deviation, `value se`: with the
  standard error, `value ci`: with half of Student's 95 % interval. Rows written before they had the column `std` have both where they are of two or three repeats, which
  mean, median and quantiles determine;
- `of labels`: that parameter of the rows in place of their values, for a setting;
- `minus model=gcn`, `minus NAME`: less the values of the same query with that parameter, or of that row's name;
  `over model=gcn`, `over NAME`: divided by them;
- `rows 2 7`: only the second to the seventh of them; `least`, `most`, `least most`: the extremes over the chosen rows;
  `mean`, `sum`: their mean, their sum.

The values that are chosen, in the order of the file, are the next numbers of the line, up to the next comment. A
number keeps as many digits as the page gives it: 83.0 is to the nearest tenth, and from 1,000 on final zeros count
as rounded. A number after ± is skipped unless `std` or `se` is asked for.

A number of three digits in a table, with decimals or with a unit such as % that no comment stands for is *unmarked*: a setting, a
number of the literature, or one that no row holds. `UNMARKED` says how many a page of results may have; one more, and the check fails.
"""  # noqa: E501

from __future__ import annotations

import csv
import operator
import re
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
TEMPLATES = HERE / "tables"
EXTREMES: dict[str, Callable[[list[float]], float]] = {
    "least": min, "most": max, "mean": fmean, "sum": sum,
}  # fmt: skip
BETWEEN: dict[str, Callable[[float, float], float]] = {
    "minus": operator.sub,
    "over": operator.truediv,
}
SPREADS = ("std", "se", "ci")
COLUMNS = ("value", "median", "q20", "q80", "repeats", *SPREADS)
MARKER = re.compile(r"<!--=(.*?)-->")
MINUS = "\u2212"  # as typeset, beside the hyphen
TABLE = re.compile(r"<!-- table: (?P<name>\S+) -->\n\n?(?P<rows>(?:\|.*\n)+)")
TEMPLATE = re.compile(r"^# (\S+)\n\n((?:\|.*\n)+)", re.MULTILINE)
NUMBER = re.compile(
    rf"(?P<spread>± *)?(?<![\w.,])(?P<number>[-{MINUS}+]?\d+(?:,\d{{3}})*(?:\.\d+)?(?:e-?\d+)?)"
    r"(?![\w.]*\w)"
)
ASIDE = re.compile(  # no results: comments, code, addresses, figures, papers, levels of intervals
    r"<!--.*?-->|`[^`]*`|\]\([^)]*\)|\(\d{4}[^)]*\)|\b(?:[Ff]igures?|[Tt]ables?|[Cc]hapters?|[Ss]ections?|[Tt]heorems?|"
    r"eqs?\.|versions?|Python|PyG|torch) \d[\d.]*[a-c]?(?:(?: and| to| or) \d[\d.]*[a-c]?)*"
    r"|^\| [\dA-F]\.\d[a-c]?(?=[ ,])|\(Li 2024[^)]*\)|\b95 %(?= intervals?\b)"
    r"|\bquantiles 0\.2 and 0\.8"
)
UNIT = re.compile(r" ?(?:%|±|times\b|points?\b|M?B\b|m?s\b|seconds\b|minutes\b)|(?<=[.]\d)")
UNMARKED = {  # any other page: none
    "README.md": 7,  # its bullets, which tests/docs/test_readme.py compares
    "docs/design.md": 1,
    "docs/howto/backends.md": 1,
    "docs/performance-dense.md": 21,
    "docs/reliability.md": 13,
    "docs/results/chapter-2.md": 2,
    "docs/results/chapter-4.md": 1,
    "docs/results/deep-fusion.md": 2,
    "docs/results/molecules.md": 2,
    "docs/scale.md": 1,
    "docs/systems.md": 1,
    "docs/tables/results/appendix-b.md": 13,
    "docs/tables/results/chapter-2.md": 1,
    "docs/tables/results/chapter-6.md": 3,
}


@dataclass(frozen=True)
class Difference:
    """A number of a page that is not the number of its row."""

    place: str
    query: str
    shown: str
    expected: str

    def __str__(self) -> str:
        return f"{self.place}: shows {self.shown}, expected {self.expected} ({self.query})"


def pages() -> list[Path]:
    """The templates of tables, README.md and every written page."""
    written = [
        p
        for p in sorted(HERE.rglob("*.md"))
        if not any(part.startswith("_") for part in p.relative_to(HERE).parts[:-1])
    ]
    return sorted([HERE.parent / "README.md", *written], key=lambda p: TEMPLATES not in p.parents)


@cache
def templates(page: str) -> dict[str, str]:
    """Tables of a page as its rows make them, by name."""
    path = TEMPLATES / page.removeprefix("docs/")
    found = TEMPLATE.findall(path.read_text(encoding="utf-8")) if path.exists() else ()
    return {name: re.sub(r"<!--=.*?--> *", "", compared(rows)[0]) for name, rows in found}


def tables(text: str, page: str) -> list[tuple[str, int, int]]:
    """Name, begin and end of the tables of a page that are made.

    Raises:
        ValueError: If a template of the page has no table there.
    """
    found = [(match["name"], *match.span("rows")) for match in TABLE.finditer(text)]
    for name in templates(page).keys() - {name for name, *_ in found}:
        first = re.escape(templates(page)[name].splitlines()[0])
        match = re.search(rf"^{first}\n(?:\|.*\n)*", text, re.MULTILINE)
        if match is None:
            raise ValueError(f"{page}: has no table {name}, of which there is a template")
        found.append((name, *match.span()))
    return sorted(found, key=lambda table: table[1])


def compared(text: str, page: str = "page") -> tuple[str, list[Difference], int]:
    """The text with the numbers of the rows, what differed, and how many numbers have rows.

    Raises:
        ValueError: A query that chooses no row, or fewer numbers after it than rows.
    """
    text, differences, count = _made_anew(text, page)
    lines = text.split("\n")
    for at, line in enumerate(lines):
        for marker in reversed(list(MARKER.finditer(line))):
            query, place = marker[1].strip(), f"{page}:{at + 1}"
            values, found = chosen(query), numbers(line, marker)
            if len(found) < len(values):
                raise ValueError(
                    f"{place}: {len(found)} numbers after {query!r}, expected {len(values)}"
                )
            count += len(values)
            for match, value in reversed(list(zip(found, values, strict=False))):
                if not agrees(match["number"], value):
                    new = printed(match["number"], value)
                    differences.append(Difference(place, query, match["number"], new))
                    line = line[: match.start("number")] + new + line[match.end("number") :]
        lines[at] = line
    return "\n".join(lines), differences, count


def numbers(line: str, marker: re.Match[str]) -> list[re.Match[str]]:
    """The numbers that a comment may stand for: up to the next one."""
    following = MARKER.search(line, marker.end())
    end = following.start() if following else len(line)
    spread = set(SPREADS) & set(re.split("[; ]+", marker[1]))
    return [m for m in NUMBER.finditer(line, marker.end(), end) if spread or not m["spread"]]


def unmarked(text: str, page: str = "page") -> list[str]:
    """Results that no comment stands for, as `line: number in its line`."""
    for _, begin, end in reversed(tables(text, page)):
        text = text[:begin] + "\n" * text[begin:end].count("\n") + text[end:]
    fenced, out = False, []
    for at, line in enumerate(text.split("\n"), 1):
        fenced ^= line.startswith("```")
        if fenced or line.startswith(("#", "!", "    ", "$")):
            continue
        taken = {
            match.start("number")
            for marker in MARKER.finditer(line)
            for match in numbers(line, marker)[: len(chosen(marker[1].strip()))]
        }
        plain = ASIDE.sub(lambda match: "\0" * len(match[0]), line)
        first = plain.find("|", 1)
        for match in NUMBER.finditer(plain):
            shown = match["number"]
            cell = plain.startswith("|") and match.start() > first and len(shown) > 2
            unit = match["spread"] or UNIT.match(plain, match.end())
            if (cell or unit or "." in shown) and match.start("number") not in taken:
                near = ASIDE.sub("", line[max(0, match.start() - 60) : match.end() + 20]).strip()
                out.append(f"{at}: {shown} in {near!r}")
    return out


def chosen(query: str) -> list[float]:
    """The numbers that a query stands for.

    Raises:
        ValueError: No such file, no such row, or an option that is not one.
    """
    file, name, *rest = (part.strip() for part in query.split(";"))
    if between := [part for part in rest if part.split()[0] in BETWEEN]:
        if set(SPREADS) & set(" ".join(rest).split()):
            raise ValueError(f"{query!r}: rows do not hold the deviation of a difference or ratio")
        extremes = [part for part in rest if set(part.split()) <= set(EXTREMES)]
        rest = [part for part in rest if part not in (between[0], *extremes)]
        sign, other = between[0].split(" ", 1)
        changed = [*(p for p in rest if p.split("=")[0] != other.split("=")[0]), other]
        second = [file, name, *changed] if "=" in other else [file, other, *rest]
        pairs = zip(chosen("; ".join([file, name, *rest])), chosen("; ".join(second)), strict=True)
        out = [BETWEEN[sign](mine, its) for mine, its in pairs]
        return [EXTREMES[word](out) for word in " ".join(extremes).split()] or out
    wanted = dict(pair.split("=", 1) for pair in rest if "=" in pair)
    scale, columns, part, extremes = 1.0, ["value"], slice(None), []
    for option in (word for word in rest if "=" not in word):
        match option.split():
            case ["%"]:
                scale = 100.0
            case ["x", factor]:
                scale = float(factor)
            case ["rows", first, last]:
                part = slice(int(first) - 1, int(last))
            case ["of", *parameter] if parameter:
                columns = ["parameter " + " ".join(parameter)]
            case [*words] if words and set(words) <= set(EXTREMES):
                extremes = words
            case [*words] if words and set(words) <= set(COLUMNS):
                columns = words
            case _:
                raise ValueError(f"{query!r}: option {option!r}, expected one of those in --help")
    rows = [row for row in read(file) if _named(row["name"], name) and _has(row, wanted)][part]
    spread = {column: abs(scale) for column in SPREADS}  # no sign turns a deviation
    out = [
        _number(row, column, query) * spread.get(column, scale)
        for row in rows
        for column in columns
    ]
    if not out:
        raise ValueError(f"{query!r}: chooses no row of benchmarks/results/{file}.csv")
    return [EXTREMES[word](out) for word in extremes] or out


@cache
def read(file: str) -> list[dict[str, Any]]:
    """The rows of a file, parameters as a dict.

    Raises:
        ValueError: No such file.
    """
    path = RESULTS / f"{file}.csv"
    if not path.exists():
        raise ValueError(f"{file!r}: no file {path.name} in benchmarks/results")
    with path.open(newline="", encoding="utf-8") as lines:
        rows: list[dict[str, Any]] = list(csv.DictReader(lines))
    for row in rows:
        pairs = (pair.split("=", 1) for pair in row["parameters"].split("; ") if "=" in pair)
        row["parameters"] = dict(pairs)
    return rows


def agrees(shown: str, value: float) -> bool:
    """Whether a printed number is the value to the digits that it has."""
    number = float(shown.replace(",", "").replace(MINUS, "-"))
    return abs(number - value) <= 0.5 * _step(shown) * (1 + 1e-6) + 1e-9 * abs(value)


def printed(like: str, value: float) -> str:
    """The value with the digits, sign and commas of a printed number."""
    step, mantissa = _step(like), like.partition("e")[0]
    digits = len(mantissa.partition(".")[2])
    if "e" in like:
        text = re.sub(r"e([-+])0*", r"e\1", f"{value:.{digits}e}").replace("e+", "e")
    else:
        number = round(value / step) * step if step > 1 else value
        number = round(number, digits) or 0.0  # a zero without sign
        text = f"{number:{'+' if like[0] == '+' else ''}{',' if ',' in like else ''}.{digits}f}"
    return text if "e" in like or like[0] == "-" else text.replace("-", MINUS)


def _step(shown: str) -> float:
    """What one unit of the last printed digit is worth."""
    digits, _, power = shown.replace(",", "").partition("e")
    whole, _, decimals = digits.lstrip(f"-{MINUS}+").partition(".")
    zeros = len(whole) - len(whole.rstrip("0")) if len(whole) > 3 and not decimals else 0
    return 10.0 ** (int(power or 0) - len(decimals) + zeros)


def _number(row: dict[str, Any], column: str, query: str) -> float:
    """A column of a row, or a parameter.

    Raises:
        ValueError: A deviation that the row does not determine, or a parameter that it has not.
    """
    if column.startswith("parameter "):
        parameter = column.removeprefix("parameter ")
        if parameter not in row["parameters"]:
            raise ValueError(f"{query!r}: no parameter {parameter!r}, expected {row['parameters']}")
        return float(row["parameters"][parameter])
    if column not in SPREADS:
        return float(row[column])
    repeats = int(row["repeats"])
    if row.get("std"):
        std = float(row["std"])
    elif repeats in (2, 3):  # quantiles lie on the lines between the sorted repeats
        median, q20, q80 = (float(row[name]) for name in ("median", "q20", "q80"))
        if repeats == 2:
            std = stdev([(4 * q20 - q80) / 3, (4 * q80 - q20) / 3])
        else:
            std = stdev([(q20 - 0.4 * median) / 0.6, median, (q80 - 0.4 * median) / 0.6])
    else:
        raise ValueError(f"{query!r}: a row of {repeats} repeats without column std")
    error = std / repeats**0.5
    return {"std": std, "se": error, "ci": float(stdtrit(repeats - 1, 0.975)) * error}[column]


def _named(name: str, wanted: str) -> bool:
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted


def _has(row: dict[str, Any], wanted: dict[str, str]) -> bool:
    return all(row["parameters"].get(key) == value for key, value in wanted.items())


def _made_anew(text: str, page: str) -> tuple[str, list[Difference], int]:
    differences, count = [], 0
    for name, begin, end in reversed(tables(text, page)):
        old = text[begin:end]
        new = TABLES[name]() + "\n" if name in TABLES else templates(page)[name]
        count += len(NUMBER.findall(new)) if name in TABLES else 0  # others count as templates
        pairs = list(zip(old.splitlines(), new.splitlines(), strict=False))
        if old.count("\n") != new.count("\n"):
            pairs.append((old, new))
        differences += [Difference(page, f"table {name}", a, b) for a, b in pairs if a != b]
        text = text[:begin] + new + text[end:]
    return text, differences, count


def _made_by(file: str, what: str) -> Callable[[], str]:
    return lambda: runpy.run_path(str(HERE.parent / file))[what]()


TABLES = {name: _made_by("benchmarks/summary.py", name) for name in ("speed", "memory", "nearest")}
TABLES["recipes"] = _made_by("benchmarks/recipes.py", "repeated")
TABLES["recipes-waiting"] = _made_by("benchmarks/recipes.py", "waiting")
TABLES["recipes-read"] = _made_by("benchmarks/recipes.py", "only_read")
TABLES["reliability"] = _made_by("battery/record.py", "table")
TABLES["mutation"] = _made_by("battery/mutation_record.py", "table")


def main() -> int:
    """Compare or write every page; the exit status says whether they agreed."""
    if set(sys.argv[1:]) - {"--write", "--unmarked"}:
        print(__doc__)
        return 2
    write, failed, total, grown = "--write" in sys.argv[1:], 0, 0, 0
    for page in pages():
        name = str(page.relative_to(HERE.parent))
        templates.cache_clear()  # which may just have been written
        text, differences, count = compared(page.read_text(encoding="utf-8"), name)
        total, failed = total + count, failed + len(differences)
        without = unmarked(text, name)
        told = [f"{name}: {count} numbers of rows"] if count else []
        for line in [*differences, *told]:
            print(line)
        if "--unmarked" in sys.argv[1:]:
            print("\n".join(f"{name}:{line}" for line in without))
        most = UNMARKED.get(name, 0)
        if len(without) > most:
            grown += 1
            print(f"{name}: {len(without)} unmarked results, expected at most {most} (--unmarked)")
        if write and differences:
            page.write_text(text, encoding="utf-8")
    print(f"{total} numbers, {failed} {'written anew' if write else 'that differ'}")
    return int(grown > 0 or (failed > 0 and not write))


if __name__ == "__main__":
    sys.exit(main())
