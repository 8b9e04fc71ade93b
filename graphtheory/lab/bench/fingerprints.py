"""Molecules without a network: Morgan fingerprints and gradient-boosted trees, for comparison."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from torch import Tensor

from graphtheory.lab.bench.config import AXES, RunConfig, RunResult, constant_score
from graphtheory.lab.datasets.graph_sets import GraphSet
from graphtheory.lab.train import FitResult
from graphtheory.lab.train.score import SCORES, ogb_score

NAME = "ecfp"


@dataclass(frozen=True)
class TreesRunConfig(RunConfig):
    """Options of scikit-learn's boosted trees, in its names, and of the fingerprints."""

    model: str = NAME
    learning_rate: float = 0.05
    max_iter: int = 300  # trees of a label; the number used is chosen on validation
    max_leaf_nodes: int = 15
    min_samples_leaf: int = 20
    l2_regularization: float = 0.0
    max_features: float = 0.3
    radius: int = 2  # bonds around an atom that a substructure reaches
    bits: int = 2048  # of a fingerprint


def check(graphs: GraphSet) -> list[str]:
    """The molecules' SMILES, all of which rdkit, if installed, has to read."""
    if graphs.smiles is None:
        raise ValueError(f"model: {NAME} reads molecules, and {graphs.name} has no SMILES")
    if find_spec("rdkit") is None:
        raise ValueError(f"model: {NAME} needs rdkit: pip install 'graphtheory[molecules]'")
    if (wrong := _unread(tuple(graphs.smiles))) is not None:
        raise ValueError(
            f"model: {NAME} cannot read the SMILES of graph {wrong}, {graphs.smiles[wrong]!r}; "
            "take the graph out"
        )
    return graphs.smiles


@lru_cache(maxsize=2)
def _unread(smiles: tuple[str, ...]) -> int | None:
    from rdkit import Chem
    from rdkit.rdBase import BlockLogs

    with BlockLogs():  # its own lines on the error stream
        return next((i for i, s in enumerate(smiles) if Chem.MolFromSmiles(s) is None), None)


def run(config: TreesRunConfig, graphs: GraphSet, *, seed: int) -> RunResult:
    """Train once; the number of trees is chosen on validation, as networks take an epoch."""
    bits = _bits(tuple(check(graphs)), config.radius, config.bits)
    y = torch.as_tensor(graphs._data.y)
    parts = [graphs.train_index, graphs.val_index, graphs.test_index]
    score = SCORES[graphs.metric] if graphs.evaluator is None else ogb_score(graphs.evaluator)
    began = time.perf_counter()
    found, leaves = _staged(config, graphs.kind, bits, y, parts, seed)
    seconds = time.perf_counter() - began
    (train, val, test) = (y[part] for part in parts)
    history = [
        {"epoch": float(step), "val": score(on_val, val), "test": score(on_test, test)}
        for step, (on_val, on_test) in enumerate(found, 1)
    ]
    choose = max if score.higher_is_better else min
    best = choose(history, key=lambda row: row["val"])  # the earliest on a tie
    fit = FitResult(
        best["test"], best["val"], int(best["epoch"]), len(history), seconds / len(history),
        float("nan"), [],
    )  # fmt: skip
    constant = constant_score(score, graphs.kind, train, test, graphs.num_outputs)
    return RunResult(fit, None, None, leaves, constant)


@lru_cache(maxsize=2)
def _bits(smiles: tuple[str, ...], radius: int, bits: int) -> np.ndarray:
    """Compute Morgan fingerprints, uint8 [G, bits]."""
    from rdkit import Chem
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    generator = GetMorganGenerator(radius=radius, fpSize=bits)
    return np.stack([generator.GetFingerprintAsNumPy(Chem.MolFromSmiles(s)) for s in smiles])


def _staged(
    config: TreesRunConfig, kind: str, bits: np.ndarray, y: Tensor, parts: list[Tensor], seed: int
) -> tuple[list[tuple[Tensor, Tensor]], int]:
    """Predictions on validation and test after every tree, and the number of leaves in the end."""
    columns, values = [y] if kind == "multiclass" else list(y.unbind(1)), kind == "regression"
    trees = HistGradientBoostingRegressor if values else HistGradientBoostingClassifier
    options = {name: getattr(config, name) for name in AXES["fingerprints"]["every"]}
    stages, leaves = [], 0
    for label in columns:
        train = parts[0][~label[parts[0]].isnan()] if label.is_floating_point() else parts[0]
        given = label[train].numpy()
        if len(np.unique(given)) < 2:  # nothing to tell apart: every molecule is predicted alike
            flat = [torch.full((len(p), 1), float(given[0]) if len(given) else 0.0) for p in parts]
            stages.append([(flat[1], flat[2])] * config.max_iter)
            continue
        model = trees(**options, early_stopping=False, random_state=seed)
        model.fit(bits[train.numpy()], given)
        leaves += sum(tree.get_n_leaf_nodes() for step in model._predictors for tree in step)
        staged = model.staged_predict if values else model.staged_decision_function
        pairs = zip(*(staged(bits[p.numpy()]) for p in parts[1:]), strict=True)
        stages.append([(_column(a, kind), _column(b, kind)) for a, b in pairs])
    return [
        (torch.cat([a for a, _ in step], 1), torch.cat([b for _, b in step], 1))
        for step in zip(*stages, strict=True)
    ], leaves


def _column(found: np.ndarray, kind: str) -> Tensor:
    values = torch.from_numpy(np.ascontiguousarray(found)).float()
    if values.dim() == 2:
        return values
    if kind == "multiclass":  # two classes have one decision value
        return torch.stack([torch.zeros_like(values), values], 1)
    return values[:, None]
