"""`graphtheory tune`, which searches options on validation data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphtheory.lab.cli.options import Folder, Names, OnData, Whole
from graphtheory.lab.cli.show import RefusedError, Screen, at_least, data_root, usage_errors


@dataclass(frozen=True)
class Tune(OnData):
    """Options of `graphtheory tune`, which searches on validation scores."""

    models: Names = ("gt", "gt-plain", "gat", "gcn", "mlp")
    budget: Whole = 8
    out: Folder = None
    keep: bool = False

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
