"""`graphtheory tune`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphtheory.lab.cli.bench_runs import search_all
from graphtheory.lab.cli.fitting import IMAGES, compared, fitting
from graphtheory.lab.cli.on_data import OnData
from graphtheory.lab.cli.options import Folder, Names, Whole
from graphtheory.lab.cli.show import (
    RefusedError,
    Screen,
    at_least,
    data_root,
    refusing,
)


@dataclass(frozen=True)
class Tune(OnData):
    """Choose the options of models on validation scores, with as many candidates for each.

    A random search; a model whose axes have fewer combinations than that tries them all. Each
    candidate is a line of search.jsonl; what stands there is not tried again, so that the same
    command goes on where it was stopped. The best candidates go to tuned.json.

    Try:  graphtheory tune --dataset Cora --models gt,gcn --budget 8 --root DATA
    """

    models: Names = ("gt", "gt-plain", "gat", "gcn", "mlp")
    """Names of models, separated by commas; of a set of graphs, without it gt, gt-plain, gine, gcn,
    gatv2, mlp. `graphtheory bench --help` explains them."""
    budget: Whole = 8
    """Candidates a model."""
    out: Folder = None
    """Where search.jsonl and tuned.json go; without it runs/tune-DATASET."""
    keep: bool = False
    """Also write the best into the installed package, where `train` and `bench` look."""

    def check(self) -> None:
        """The options alone."""
        at_least(1, budget=self.budget)
        super().check()

    def run(self, screen: Screen) -> None:
        """Search, print, write."""
        from graphtheory.lab.bench import search, tuned
        from graphtheory.lab.report import search_table

        root, models = data_root(self.root), self.models
        if self.data is None:
            models = compared(self.dataset, self.models, type(self).models, root)
        if not models:
            raise RefusedError("--models: no name, expected one or more separated by commas")
        if self.data is None and fitting("--models", self.dataset, models, root) == IMAGES:
            raise RefusedError(f"--dataset: {self.dataset} holds images, whose recipe is fixed")
        with refusing():
            problem = self.problem(root)
            if self.data is not None and models == type(self).models:
                models = problem.compared
            for model in models:
                problem.known_model(model)
            with screen.working(f"reading {problem.name}"):
                nodes, measure = problem.num_nodes, problem.measure
            out = self.out or Path(f"runs/tune-{problem.name}")
            out.mkdir(parents=True, exist_ok=True)
            log_file = out / "search.jsonl"
            study = search.Search(problem, models, self.budget, self.split, root, log_file)
            before = len(study.tried)
        if before:
            screen.note(f"{before} candidates are known from {study.log}.")
        log = search_all(screen, study, self.threads, nodes)
        best = search.best(log, measure)
        screen.table(search_table(log, measure))
        spaces = {model: problem.space(model) for model in best}
        for file in [out / "tuned.json", *([tuned.FILE] if self.keep else [])]:
            tuned.keep(best, spaces, file)
        tried = [vars(judged) | {"trial": judged.trial.as_dict()} for judged in log]
        chosen = {model: judged.trial.as_dict() for model, judged in best.items()}
        screen.result({"folder": out, "best": chosen, "candidates": tried})
        screen.say(f"Written to {out}: search.jsonl, tuned.json.")
