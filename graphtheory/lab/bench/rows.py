"""Rows of results and the CSV files of them, and tables for people."""

import csv
import io
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit

from graphtheory.disk import replace_file

FIELDS = (
    "name", "parameters", "value", "unit", "std", "median", "q20", "q80", "repeats",
    "device", "versions", "commit",
)  # fmt: skip
_PACKAGES = ("pyg-graphtheory", "torch", "torch-geometric", "numba", "numpy", "scipy", "lightning")


@dataclass(frozen=True)
class Row:
    """One result over its repeats, with unit and quantiles."""

    name: str  #: What was measured.
    parameters: dict[str, Any]  #: Under which settings.
    value: float  #: Mean over the repeats.
    unit: str  #: Of value, median, q20, q80 and std; "1" for dimensionless numbers.
    median: float  #: Over the repeats.
    q20: float  #: Quantile 0.2 over the repeats.
    q80: float  #: Quantile 0.8 over the repeats.
    repeats: int  #: How often it was measured.
    std: float | None = None  #: Over the repeats (n - 1); None of one, and of what is not finite.

    @classmethod
    def of(cls, name: str, values: float | Sequence[float], unit: str, **parameters: Any) -> "Row":
        """Make the row of one number or of repeated measurements.

        Raises:
            ValueError: No measurement.

        Example:
            >>> Row.of("test accuracy", [0.5, 0.7], "1", model="gt").value
            0.6
        """
        measured = [float(v) for v in (values if isinstance(values, Sequence) else [values])]
        if not measured:
            raise ValueError(f"values: none for {name!r}, expected at least one measurement")
        low, middle, high = (float(q) for q in np.quantile(measured, (0.2, 0.5, 0.8)))
        count, mean = len(measured), fmean(measured)
        std = stdev(measured) if count > 1 and math.isfinite(mean) else None
        return cls(name, parameters, mean, unit, middle, low, high, count, std)


@dataclass(frozen=True)
class Environment:
    """The machine, versions and commit that a result was measured with."""

    device: str  #: Processor and torch's number of threads, or the accelerator that torch sees.
    versions: dict[str, str]  #: Of Python and the packages that compute.
    commit: str  #: Of the package's checkout, "+" where files differ from it, or "".

    @classmethod
    def here(cls) -> "Environment":
        """The environment of this process and this checkout."""
        found = {package.removeprefix("pyg-"): installed(package) for package in _PACKAGES}
        versions = {"python": platform.python_version()}
        versions |= {package: text for package, text in found.items() if text is not None}
        versions["torch"] = str(torch.__version__)  # with the build, such as +cu130
        return cls(_device(), versions, _commit())


def lines_of(rows: Iterable[Row], environment: Environment) -> list[dict[str, Any]]:
    """A line of a CSV file for each row: `FIELDS`, parameters and versions as "name=value; ..."."""

    def joined(pairs: dict[str, Any]) -> str:
        return "; ".join(f"{key}={value}" for key, value in pairs.items())

    shared = asdict(environment) | {"versions": joined(environment.versions)}
    return [asdict(row) | {"parameters": joined(row.parameters)} | shared for row in rows]


def write_lines(path: str | PathLike[str], lines: Iterable[Mapping[str, Any]]) -> None:
    """Write a CSV file with the columns `FIELDS`."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, FIELDS)
    writer.writeheader()
    writer.writerows(lines)
    replace_file(Path(path), file.getvalue().encode())


def write_csv(path: str | PathLike[str], rows: Iterable[Row], environment: Environment) -> None:
    """Write rows as lines of a CSV file."""
    write_lines(path, lines_of(rows, environment))


def as_json(value: Any) -> str:
    """Write a value as indented JSON, with null for what is not finite."""
    return json.dumps(finite(value), indent=1, default=str) + "\n"


def finite(value: Any) -> Any:
    """The value as JSON holds it, with None for every nan and infinity, which it does not have."""
    return json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)


def _device() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    processor, description = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if description.exists():  # Linux; elsewhere the platform module knows
        lines = description.read_text().splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        processor = next(names, processor)
    return f"{processor}, {torch.get_num_threads()} of {os.cpu_count()} cores"


def installed(package: str) -> str | None:
    """The version of a package; None where it was never installed, as in a source tree."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    here = Path(__file__).parent
    if not (here.parents[2] / ".git").exists():  # an environment may lie in another's checkout
        return ""
    try:
        asked = subprocess.run(
            ["git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"],
            cwd=here, capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip()


_SIGNIFICANT = 4  # digits of a score in the unit of its target


@dataclass(frozen=True)
class Table:
    """Columns and rows of text; every column but the first `words` holds numbers.

    Raises:
        ValueError: A row of another length than the headings.
    """

    title: str  #: Above the table.
    columns: Sequence[str]  #: Headings.
    rows: Sequence[Sequence[str]]  #: One text a column.
    words: int = 1  #: How many columns, from the left, are words.
    note: str = ""  #: Below the table; "" for none.

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"rows: {len(row)} entries in {list(row)}, expected {len(self.columns)}, one "
                    f"for each of {list(self.columns)}"
                )

    def __str__(self) -> str:
        """Lines of text: columns as wide as they need, words to the left and numbers to the right.

        Example:
            >>> print(Table("", ("model", "test"), [("gt", "91.20"), ("gcn", "9.10")]))
            model   test
            gt     91.20
            gcn     9.10
        """
        lines = [list(self.columns), *(list(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(
                cell.ljust(width) if place < self.words else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*filter(None, [self.title]), *text, *filter(None, [self.note])])


def pairs(title: str, values: Iterable[tuple[str, object]]) -> Table:
    """Make a table of names and values, without headings."""
    return Table(title, ("", ""), [(name, str(value)) for name, value in values], words=2)


def counted(count: int | str, thing: str) -> str:
    """Write a number of things, such as "1 seed" and "3 seeds"."""
    return f"{count} {thing}" if str(count) == "1" else f"{count} {thing}s"


def joined(names: Sequence[str], one: str, more: str) -> str:
    """Write names and their verb, such as "gt uses" and "gt, gat and gcn use"."""
    *first, last = names
    return f"{', '.join(first)} and {last} {more}" if first else f"{last} {one}"


def mean_spread(values: Sequence[float], digits: str = ".2f") -> str:
    """Write mean ± standard deviation of a sample, such as "1.50 ± 0.71"; one value alone."""
    if len(values) == 1:
        return f"{values[0]:{digits}}"
    return f"{fmean(values):{digits}} ± {stdev(values):{digits}}"


def percent_mean(shares: Sequence[float]) -> str:
    """Write the mean of shares (0..1) in percent, such as "37.5"."""
    return f"{100 * fmean(shares):.1f}"


def percent_spread(shares: Sequence[float], digits: str = ".2f") -> str:
    """Write `mean_spread` of shares (0..1) in percent."""
    return mean_spread([100 * share for share in shares], digits)


@dataclass(frozen=True)
class Measure:
    """A metric as tables and pictures show it."""

    name: str  # as `train` and the data sets spell it
    title: str  # as it is written in a sentence

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher score is a better one; False of errors."""
        from graphtheory.lab.train.score import SCORES  # torchmetrics takes long to import

        return SCORES[self.name].higher_is_better

    share = higher_is_better  # lies in 0..1 and is shown in percent; errors have a unit

    @property
    def symbol(self) -> str:
        """The unit of what is shown: "%" of shares; that of a target is not known."""
        return "%" if self.share else ""

    def gain(self, first: float, other: float) -> float:
        """The advantage of the first score over the other one; negative where it is worse."""
        return first - other if self.higher_is_better else other - first

    def shown(self, score: float, spread: float = math.nan, sign: str = "") -> str:
        """Write a score without its unit as "91.20 ± 0.51", or "91.20" where the spread is nan."""
        digits, scale = 2, 100
        if not self.share:  # as many significant digits in the larger one
            largest = max((abs(v) for v in (score, spread) if math.isfinite(v)), default=0.0)
            before = math.floor(math.log10(largest)) if largest else -1
            digits, scale = max(0, min(8, _SIGNIFICANT - 1 - before)), 1
        text = f"{scale * score:{sign}.{digits}f}"
        return text if math.isnan(spread) else f"{text} ± {scale * spread:.{digits}f}"

    def short(self, score: float, digits: str = ".1f") -> str:
        """Write a score without its unit for a line of progress; `digits` formats a percent."""
        return f"{100 * score:{digits}}" if self.share else self.shown(score)

    def format(self, score: float, spread: float = math.nan) -> str:
        """Write a score as `shown` does, with its unit."""
        return f"{self.shown(score, spread)} {self.symbol}".rstrip()

    @property
    def axis_unit(self) -> str:
        """Unit and, where lower is better, the direction, for axes and notes; "%" of shares."""
        direction = "" if self.higher_is_better else "lower is better"
        return ", ".join(filter(None, (self.symbol, direction)))


@dataclass(frozen=True)
class Difference:
    """The advantage of the first model over another on the same seeds; positive is better."""

    model: str  # the other one
    difference: float  # mean over the seeds that both have, 0..1 or in the unit of the target
    standard_error: float  # of that mean; nan of one seed
    ahead: int  # seeds on which the first model is strictly better
    seeds: int  # that both have

    @property
    def half_width(self) -> float:
        """Half of Student's 95 % interval of the mean over the seeds; nan of one seed."""
        return float(stdtrit(self.seeds - 1, 0.975)) * self.standard_error


_ROUNDING = 1e-9  # of differences that are all alike


def reading(found: Difference) -> str:
    """Say whether Student's 95 % interval leaves 0 out, or that there are too few seeds for it."""
    if math.isnan(found.standard_error):
        return "one seed"
    if abs(found.difference) <= found.half_width:
        return "not clear"
    if found.standard_error <= _ROUNDING * abs(found.difference) and found.seeds < 5:
        return "few seeds"
    return "ahead" if found.difference > 0 else "behind"


_TITLES = {
    "accuracy": "accuracy", "rocauc": "ROC AUC", "ap": "average precision", "f1": "macro F1",
    "mae": "MAE", "rmse": "RMSE",
}  # fmt: skip
MEASURES = {name: Measure(name, title) for name, title in _TITLES.items()}
ACCURACY = MEASURES["accuracy"]


def measure_of(metric: str) -> Measure:
    """Look up how a metric is read."""
    if metric not in MEASURES:
        raise ValueError(f"metric: got {metric!r}, expected one of {', '.join(MEASURES)}")
    return MEASURES[metric]
