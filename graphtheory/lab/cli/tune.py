"""`graphtheory tune`, which searches options on validation data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphtheory.lab.cli.options import Folder, Names, OnData, Whole
from graphtheory.lab.cli.show import RefusedError, Screen, at_least, data_root, usage_errors


@dataclass(frozen=True)
class Tune(OnData):
    """Choose the options of models on validation scores, with as many candidates for each.

    A random search; a model whose axes have fewer combinations than that tries them all. Each
    candidate is a line of search.jsonl; those that are there already are not tried again, so that
    the same command goes on where it was stopped. The best candidates go to tuned.json.

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
    """Also write the best into tuned.json of your cache folder ($GRAPHTHEORY_CACHE, or
    ~/.cache/graphtheory), where `train` and `bench` look before the options that ship with the
    package."""

    def check(self) -> None:
        at_least(1, budget=self.budget)
        super().check()

    def run(self, screen: Screen) -> None:
        from graphtheory.lab.bench import search, tuned
        from graphtheory.lab.report import search_table

        models = self.compared(self.models)
        if self.on_images(models, "--models"):
            raise RefusedError(f"--dataset: {self.dataset} holds images, whose recipe is fixed")
        with usage_errors():
            task = self.bench_task()
            models = self.known_models(models, task)
            with screen.working(f"reading {task.name}"):
                assert task.num_nodes and task.measure  # the files are read
            out = self.out or Path(f"runs/tune-{task.name}")
            out.mkdir(parents=True, exist_ok=True)
            log_file = out / "search.jsonl"
            root = data_root(self.root)
            study = search.Search(task, models, self.budget, self.split, root, log_file)
            before = len(study.tried)
        if before:
            screen.note(f"{before} candidates are known from {study.log}.")
        log = self.search(screen, study, task)
        best = search.best(log, task.measure)
        screen.table(search_table(log, task.measure))
        spaces = {model: task.space(model) for model in best}
        with usage_errors(ValueError):
            for file in [out / "tuned.json", *([tuned.user_file()] if self.keep else [])]:
                tuned.keep(best, spaces, file)
        chosen = {model: found.config.as_dict() for model, found in best.items()}
        tried = [found.as_dict() for found in log]
        screen.result({"folder": out, "best": chosen, "candidates": tried})
        screen.say(f"Written to {out}: search.jsonl, tuned.json.")
        if self.keep:
            screen.say(f"Kept for `train` and `bench` in {tuned.user_file()}.")
