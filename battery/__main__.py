"""`python -m battery`: run parts of it, print what they found, end with 1 if a promise broke."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

from battery.after import after
from battery.answers import faulty_pieces, planted_faults, right_answers
from battery.bad_input import bad_input
from battery.bits import bits
from battery.bounds import bounds
from battery.caches import caches
from battery.damage import damage
from battery.derivatives import derivatives
from battery.faults import faults
from battery.files import files
from battery.forms import forms
from battery.fuzz import fuzz
from battery.half import half_precision
from battery.hostile import hostile
from battery.kills import kills
from battery.layers import against_pyg, laws
from battery.line import Line, Part
from battery.locality import locality
from battery.memory import memory
from battery.record import keep
from battery.soak import soak
from battery.threads import several_callers
from graphtheory.lab.bench.rows import Environment


def answers(share: float, seed: int) -> list[Line]:
    """Of operations and layers, faults that are found, half precision, locality and laws."""
    parts = (
        right_answers, against_pyg, planted_faults, faulty_pieces, half_precision, locality, laws,
    )  # fmt: skip
    return [line for part in parts for line in part(share, seed)]


def mutation(share: float, seed: int) -> list[Line]:
    """Changes of the source that tests notice; needs the extra `dev`, which no other part does."""
    from battery import mutation as part

    return part.mutation(share, seed)


PARTS: dict[str, Part] = {
    "answers": answers, "kills": kills, "damage": damage, "hostile": hostile, "bits": bits,
    "memory": memory, "soak": soak, "bad-input": bad_input, "faults": faults,
    "derivatives": derivatives, "fuzz": fuzz, "bounds": bounds, "mutation": mutation,
    "files": files, "caches": caches, "threads": several_callers, "after": after, "forms": forms,
}  # fmt: skip
BY_NAME_ONLY = ("mutation",)  # runs the tests, which take minutes however small the share


@dataclass(frozen=True)
class Options:
    """Tries to break the library.

    Args:
        parts: Which; without any all of them but `mutation`.
        share: Of the full number of trials: 1 is what the documentation's figures have.
        seed: Of all draws.
        out: File for the lines as JSON; those of other promises stay in it.
    """

    parts: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    share: float = 0.02
    seed: int = 0
    out: Path | None = None


def main(options: Options) -> int:
    """Exit code 1 if a promise is broken or a control was not seen."""
    torch.set_num_threads(1)
    for name in options.parts:
        if name not in PARTS:
            print(f"parts: got {name!r}, expected some of {', '.join(PARTS)}", file=sys.stderr)
            return 2
    lines: list[Line] = []
    for name in options.parts or [name for name in PARTS if name not in BY_NAME_ONLY]:
        for line in PARTS[name](options.share, options.seed):
            print(line, flush=True)
            lines.append(line)
    if options.out is not None:
        here = Environment.here()
        made = {"device": here.device, "commit": here.commit}
        keep([line.as_dict() for line in lines], options.share, made, options.out)
    broken = sum(not line.holds for line in lines)
    print(f"{len(lines) - broken} of {len(lines)} promises hold.")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
