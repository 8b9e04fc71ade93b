"""The entries of `graphtheory reproduce` that are about Deep Fusion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphtheory.cli.figure import Asked, Figure, find_images

if TYPE_CHECKING:
    from graphtheory.papers.outcome import StudyReport
    from graphtheory.papers.study import Study

_IMAGES, _GRAPHS = ("digits", "mnist", "cifar10", "cifar10-jpeg"), ("Cora", "facebook", "PubMed")
_LONG, _SHORT = 160, 20  # epochs of the one run that is looked into, of digits and of larger images
_DEEP_LR = 0.03  # of 0.01, 0.03, 0.1 for 10 layers the least loss on a seed that no figure has
_QUICK_EPOCHS, _QUICK_STEPS = 3, 10


def _heads(name: str, summary: str, only: tuple[str, ...] = _IMAGES) -> Figure:
    """Heads under one recipe."""

    def study(asked: Asked) -> Study:
        from graphtheory.bench.contrastive import recipe_for
        from graphtheory.papers.fusion import study as studies

        recipe = recipe_for(asked.dataset, asked.root)
        make = {
            "deep-fusion-temperature": studies.temperatures,
            "deep-fusion-batch": studies.batches,
            "deep-fusion-graphs": studies.on_graph,
        }.get(name, studies.HeadStudy)
        made = make(recipe)
        if not asked.quick:
            return replace(made, seeds=asked.seeds or made.seeds)
        epochs = _QUICK_STEPS if recipe.graph else _QUICK_EPOCHS
        few = replace(recipe, epochs=epochs, depth=2)
        return replace(
            made, recipe=few, seeds=1, lrs=made.lrs[:1], values=made.values[-3:], heads=made.heads
        )

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.fusion.report import heads

        return heads(name, study, rows)

    find = None if only == _GRAPHS else find_images
    return Figure(name, summary, study, report, default=only[0], only=only, find=find)


def _attention() -> Figure:
    def study(asked: Asked) -> Study:
        from graphtheory.bench.contrastive import recipe_for
        from graphtheory.papers.fusion.study import AttentionStudy

        recipe = replace(recipe_for(asked.dataset, asked.root), depth=10, heads=4)
        recipe = replace(
            recipe, epochs=_LONG if recipe.dataset == "digits" else _SHORT, lr=_DEEP_LR
        )
        made = AttentionStudy(recipe)
        if not asked.quick:
            return replace(made, seeds=asked.seeds or made.seeds)
        return replace(made, recipe=replace(recipe, epochs=_QUICK_EPOCHS), seeds=1)

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.fusion.report import attention

        return attention(study, rows)

    summary = "what the layers of a transformer head attend to, ordered by class"
    name = "deep-fusion-attention"
    return Figure(name, summary, study, report, default=_IMAGES[0], only=_IMAGES, find=find_images)


def _theorem() -> Figure:
    def study(asked: Asked) -> Study:
        from graphtheory.papers.fusion.subspace_study import SubspaceStudy

        made = SubspaceStudy(first=asked.first)
        if asked.quick:
            return replace(made, seeds=2, shapes=made.shapes[:3], noises=made.noises[::2])
        return replace(made, seeds=asked.seeds or made.seeds)

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.fusion.subspace_report import theorem_1

        return theorem_1(study, rows)

    summary = "block-diagonal attention on clusters in subspaces, with noise and without"
    return Figure("theorem-1", summary, study, report)


ENTRIES = (
    _attention(),
    _heads("deep-fusion-heads", "features learned with transformer, MLP, linear and no head"),
    _heads("deep-fusion-temperature", "transformer and MLP head over the temperature of the loss"),
    _heads("deep-fusion-batch", "transformer and MLP head over the batch size"),
    _heads("deep-fusion-graphs", "the same heads on nodes of a graph, beside DGI", _GRAPHS),
    _theorem(),
)
