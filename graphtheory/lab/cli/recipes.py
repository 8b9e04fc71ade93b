"""`graphtheory recipes`, which lists published results, and `bench --recipe`, which repeats one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.lab.cli import show
from graphtheory.lab.cli.options import Folder, Name
from graphtheory.lab.cli.show import Command, Screen

if TYPE_CHECKING:
    from graphtheory.lab.bench.recipes import Verdict
    from graphtheory.lab.cli.bench import Bench

FOLDER = Path("runs")


@dataclass(frozen=True)
class Recipes(Command):
    """Options of `graphtheory recipes`, which trains nothing."""

    needs = ("torch",)

    source: Name = None
    out: Folder = None

    def run(self, screen: Screen) -> None:
        from graphtheory.lab.bench.recipes import COLUMNS, RECIPES, verdicts
        from graphtheory.lab.bench.table import Table

        sources = tuple(dict.fromkeys(name.split("/")[0] for name in RECIPES))
        if self.source is not None:
            show.known("--source", self.source, sources)
        every = verdicts(self.out or FOLDER)
        for source in sources if self.source is None else (self.source,):
            found = [v for v in every if v.recipe.name.startswith(f"{source}/")]
            title = f"{found[0].recipe.paper} ({found[0].recipe.code})"
            screen.table(Table(title, COLUMNS, [v.cells() for v in found]))
        screen.result([_plain(v) for v in every])


def run_recipe(bench: Bench, screen: Screen) -> None:
    """Repeat the recipe that `bench --recipe` names, and print what it says of the score."""
    from graphtheory.lab.bench.benchmark import thread_limit
    from graphtheory.lab.bench.recipes import COLUMNS, RECIPES, run_recipe
    from graphtheory.lab.bench.table import Table

    assert bench.recipe is not None
    recipe = RECIPES[show.known("--recipe", bench.recipe, tuple(RECIPES), "graphtheory recipes")]
    folder = bench.out or FOLDER
    stopped = f"\nFinished runs are in {folder / 'recipes.csv'}; --resume continues from them."
    with (
        show.on_interrupt(lambda: screen.note(stopped)), thread_limit(bench.threads, None),
        show.usage_errors(), screen.steps("run") as steps,
    ):  # fmt: skip
        found = run_recipe(
            recipe, folder, root=show.data_root(bench.root), seeds=bench.seeds,
            resume=bench.resume, trainer=bench.trainer(), before=steps.before,
            finished=steps.finished,
        )  # fmt: skip
    screen.table(Table("", COLUMNS, [found.cells()]))
    for text in filter(None, (recipe.note, recipe.others)):
        screen.say(text)
    screen.result(_plain(found))


def _plain(found: Verdict) -> dict[str, Any]:
    judged = {name: getattr(found, name) for name in ("difference", "interval", "reproduced")}
    return asdict(found.recipe) | judged | {"test": list(found.runs)}
