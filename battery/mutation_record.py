"""What mutation testing found: benchmarks/results/mutation.json, and the tables of the page.

    python battery/mutation_record.py --write   # finished mutants into the file, judgments stay
    python battery/mutation_record.py           # the tables

Nothing of the library is imported: docs/check_numbers.py runs this file by itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FILE = ROOT / "benchmarks" / "results" / "mutation.json"
RUNS = ROOT / "runs" / "mutation"
VERDICTS = ("equivalent", "speed only", "gap")
Found = dict[str, Any]


def read(file: Path) -> list[Found]:
    """Finished mutants, the last outcome of each; a line that is cut off is left out."""
    found = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            one = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[json.dumps(one["key"])] = one
    return list(found.values())


def _kept() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() else {"samples": [], "survivors": []}


def _name(one: Found) -> tuple[Any, ...]:
    return one["file"], one["operator"], one["occurrence"], one["before"], one["after"]


def verdict_of(one: Found) -> tuple[str, str]:
    """What a survivor was judged to be, and why; empty if nobody did."""
    for known in _kept()["survivors"]:
        if _name(known) == _name(one):
            return known["verdict"], known["reason"]
    return "", ""


def write() -> None:
    """Every sample's counts, and its survivors with their judgments; others stay."""
    files = {int(file.stem.partition("-")[2]): file for file in sorted(RUNS.glob("seed-*.jsonl"))}
    out: dict[str, Any] = {
        what: [one for one in kept if one["seed"] not in files] for what, kept in _kept().items()
    }
    for seed, file in files.items():
        every = read(file)
        for compiled in (False, True):
            found = [one for one in every if one["compiled"] is compiled]
            if not found:
                continue
            outcomes = [one["outcome"] for one in found]
            lived = [one for one in found if one["outcome"] == "survived"]
            verdicts = [verdict_of(one) for one in lived]
            counts = {v: sum(one == v for one, _ in verdicts) for v in VERDICTS}
            out["samples"].append({
                "seed": seed, "code": "compiled" if compiled else "Python", "mutants": len(found),
                "killed": outcomes.count("killed"), "out of time": outcomes.count("out of time"),
                "survived": len(lived), **counts, "seconds": round(sum(o["cpu"] for o in found)),
            })  # fmt: skip
            names = ("file", "line", "operator", "occurrence", "before", "after", "covering", "ran")
            out["survivors"] += [
                {"seed": seed, **{n: one[n] for n in names}, "verdict": verdict, "reason": reason}
                for one, (verdict, reason) in zip(lived, verdicts, strict=True)
            ]
    FILE.write_text(json.dumps(out, indent=1) + "\n")


def table() -> str:
    """A row for each sample."""
    out = [
        "| sample | code | mutants | killed | of these out of time | survived | equivalent "
        "| speed only | gap | killed, raw | killed of those not equivalent "
        "| killed of those that change a result |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in _kept()["samples"]:
        killed = one["killed"] + one["out of time"]
        told = one["mutants"] - one["equivalent"]
        cells = (
            f"seed {one['seed']}", one["code"], one["mutants"], killed, one["out of time"],
            one["survived"], one["equivalent"], one["speed only"], one["gap"],
            *(
                f"{100 * killed / of:.1f} %"
                for of in (one["mutants"], told, told - one["speed only"])
            ),
        )  # fmt: skip
        out.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(out)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    print(table())
