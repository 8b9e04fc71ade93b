"""What the battery found, kept in benchmarks/results, and the tables of docs/reliability.md.

Nothing of the library is imported: docs/check_numbers.py runs this file by itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "benchmarks" / "results" / "battery.json"
Kept = dict[str, Any]


def keep(lines: list[Kept], share: float, made: Kept, file: Path = FILE) -> None:
    """Put lines into a file over those of the same promise; the others stay."""
    old = json.loads(file.read_text()) if file.exists() else []
    names = {(line["part"], line["promise"]) for line in lines}
    stay = [line for line in old if (line["part"], line["promise"]) not in names]
    new = [line | {"share": share} | made for line in lines]
    file.write_text(json.dumps([*stay, *new], indent=1) + "\n")


def table() -> str:
    """A row for each promise."""
    out = [
        "| part | what has to hold | trials | broke it | 95 % bound | control | seen | figures |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines = json.loads(FILE.read_text())
    order = list(dict.fromkeys(line["part"] for line in lines))
    for line in sorted(lines, key=lambda line: order.index(line["part"])):
        broken, trials = len(line["broken"]), line["trials"]
        bound = "" if broken else f"{300 / max(trials, 3):.2g} %".replace("1e+02", "100")
        figures = [f"share {line['share']:g}"] if line["share"] != 1 else []
        figures += [f"{name} {value}" for name, value in line["figures"].items()]
        cells = (
            line["part"], line["promise"], f"{trials:,}", broken, bound, line["control"],
            f"{line['caught']:,} of {line['planted']:,}", "; ".join(figures),
        )  # fmt: skip
        out.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return "\n".join(out)


if __name__ == "__main__":
    print(table())
