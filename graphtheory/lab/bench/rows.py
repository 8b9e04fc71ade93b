"""Results as rows: what was measured, how it spread, and on what it was measured."""

from __future__ import annotations

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
    def of(cls, name: str, values: float | Sequence[float], unit: str, **parameters: Any) -> Row:
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
    def here(cls) -> Environment:
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
