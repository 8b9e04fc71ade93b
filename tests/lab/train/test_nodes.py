from collections.abc import Callable
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch_geometric.data import Data

from graphtheory import Neighborhood, ops, patterns
from graphtheory.graph import csr
from graphtheory.lab.train import AdamOptions, FullGraph, GraphTask, NodeBatch, NodeTask, fit, nodes
from graphtheory.lab.train.images import Augmentation, Recipe
from graphtheory.lab.train.nodes import check_classes, check_data
from graphtheory.models import GraphTransformer
from graphtheory.recording import Recording
from tests.lab.train.conftest import OneLayer, Table, new_task, plain_trainer, without_time


def test_each_batch_has_its_masks_and_a_deterministic_pattern_is_applied_once(data: Data) -> None:
    module = FullGraph(data)
    train, evaluation = module.train_batch(0), module.evaluation_batch()
    sent = {tuple(pair) for pair in train.neighborhood.edge_index().t().tolist()}
    assert sent == {tuple(pair) for pair in data.edge_index.t().tolist()}
    assert torch.equal(train.mask, data.train_mask) and train.test_mask is None
    assert torch.equal(evaluation.mask, data.val_mask)
    assert torch.equal(evaluation.test_mask, data.test_mask)
    module = FullGraph(data, patterns.KHop(2))
    with torch.inference_mode():  # which training may follow
        module.evaluation_batch()
    first = module.train_batch(0).neighborhood
    assert first is module.train_batch(5).neighborhood is module.evaluation_batch().neighborhood
    assert first.num_edges == patterns.KHop(2)(module.graph).num_edges
    value = torch.randn(len(data.x), 1, 2, requires_grad=True)
    ops.aggregate(None, value, first).sum().backward()
    assert value.grad is not None


def test_what_precedes_a_draw_is_computed_once(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    balls: list[Neighborhood] = []
    pattern = patterns.Compose(patterns.KHop(2), patterns.Sample(2), patterns.AddSelf())
    whole = patterns.KHop.__call__

    def counted(self: patterns.KHop, graph: Neighborhood, **options: Any) -> Neighborhood:
        balls.append(whole(self, graph, **options))
        return balls[-1]

    monkeypatch.setattr(patterns.KHop, "__call__", counted)
    module = FullGraph(data, pattern)
    drawn = [module.train_batch(epoch).neighborhood for epoch in range(3)]
    drawn.append(module.evaluation_batch().neighborhood)
    assert len(balls) == 1
    assert len({tuple(n.indices.tolist()) for n in drawn}) == 4
    least = balls[0].degree().clamp(max=2)
    assert all(torch.equal(n.degree(), least + 1) for n in drawn)


def test_training_draws_by_seed_and_epoch_and_evaluation_once(data: Data) -> None:
    def module(seed: int = 0) -> FullGraph:
        return FullGraph(data, patterns.Sample(5, whole_graph=True), seed=seed)

    def drawn(seed: int, epoch: int) -> list[list[int]]:
        return module(seed).train_batch(epoch).neighborhood.edge_index().tolist()

    assert drawn(0, 1) == drawn(0, 1)
    assert drawn(0, 1) != drawn(0, 2)
    assert drawn(0, 1) != drawn(1, 1)
    one, other = module(), module()
    one.train_batch(3)
    first, second = one.evaluation_batch().neighborhood, other.evaluation_batch().neighborhood
    assert one.evaluation_batch().neighborhood is first
    assert torch.equal(first.indices, second.indices)
    assert not torch.equal(first.indices, one.train_batch(0).neighborhood.indices)


def test_evaluation_can_see_the_effective_adjacency(data: Data) -> None:
    fixed = patterns.AddSelf(), patterns.SymmetricNormalize()
    sampler = patterns.Compose(*fixed, patterns.DegreeGroups(p_star=0.5))
    module = FullGraph(data, sampler, evaluation=patterns.Effective(sampler))
    star = sampler.effective(module.graph)
    assert torch.equal(module.evaluation_batch().neighborhood.weight, star.weight)
    plain = FullGraph(data, sampler)
    drawn = module.train_batch(1).neighborhood
    assert torch.equal(drawn.edge_index(), plain.train_batch(1).neighborhood.edge_index())
    assert drawn.num_edges < star.num_edges
    assert module.describe() != plain.describe()
    assert "evaluation" not in plain.describe()
    with pytest.raises(ValueError, match=r"evaluation: got KHop.*expected None beside None"):
        FullGraph(data, evaluation=patterns.KHop(2))


def test_loaders_leave_random_state_alone_and_descriptions_tell_runs_apart(data: Data) -> None:
    module, before = FullGraph(data, patterns.Sample(5)), torch.get_rng_state()
    assert len(module.train_dataloader()) == len(list(module.train_dataloader())) == 1
    assert len(list(module.val_dataloader())) == len(list(module.test_dataloader())) == 1
    assert torch.equal(torch.get_rng_state(), before)
    base = FullGraph(data).describe()
    assert base == FullGraph(data.clone()).describe() and base["name"] == "small"
    others = FullGraph(data, patterns.KHop(2)), FullGraph(data, seed=1)
    assert base not in [other.describe() for other in others]
    with pytest.raises(ValueError, match="seed: got -1"):
        FullGraph(data, seed=-1)


def changed(tensor: Tensor, entries: dict[Any, float]) -> Tensor:
    tensor = tensor.clone()
    for position, value in entries.items():
        tensor[position] = value
    return tensor


@pytest.mark.parametrize(("name", "spoil", "error", "message"), [
    ("x", lambda x: changed(x, {(4, 2): nan, (9, 1): inf}), ValueError,
     r"data.x: 2 entries are NaN or infinite, the first at \[4, 2\]"),
    ("x", lambda x: changed(torch.eye(60), {(30, 30): nan}).to_sparse_csr(), ValueError,
     r"data.x: 1 entries .* the first at \[30, 30\]"),
    ("y", Tensor.float, ValueError, r"data.y: torch.float32 of shape \(60,\), expected int64"),
    ("y", lambda y: y[:, None], ValueError, r"data.y: .* shape \(60, 1\), expected int64 \[60\]"),
    ("y", lambda y: changed(y, {3: -1}), ValueError,
     "data.y: 1 nodes .* node 3 with -1; expected 0 or more"),
    ("val_mask", lambda mask: changed(mask, {0: True}), ValueError,
     "1 nodes are in more than one of train_mask, val_mask"),
    ("train_mask", lambda mask: mask & False, ValueError, "data.train_mask: no node"),
    ("train_mask", lambda mask: mask[:, None].repeat(1, 10), ValueError,
     r"data.train_mask: .* \(60, 10\), expected bool \[60\]"),
    ("x", Tensor.long, TypeError, "data.x: dtype torch.int64, expected a floating type"),
    ("x", lambda x: None, TypeError, "data.x: got NoneType, expected a tensor"),
    ("edge_index", lambda edges: changed(edges, {(0, 0): 60}), IndexError, "60"),
])  # fmt: skip
def test_spoiled_data_is_refused(
    data: Data, name: str, spoil: Callable[..., Any], error: type[Exception], message: str
) -> None:
    data[name] = spoil(data[name])
    with pytest.raises(error, match=message):
        FullGraph(data)


def test_labels_matter_in_the_masks_alone(data: Data) -> None:
    data.train_mask[0], data.y[0] = False, -1
    check_data(data)
    check_classes(data, 3)
    data.y[5] = 3
    with pytest.raises(ValueError, match=r"node 5 with 3; expected 0\.\.2"):
        check_classes(data, 3)


@pytest.mark.parametrize("name", ["x", "y", "edge_index", "train_mask", "val_mask", "test_mask"])
def test_fingerprint_sees_every_part(data: Data, name: str) -> None:
    module = FullGraph(data)
    before = module.describe()
    part = data[name].view(-1)
    part[0] = ~part[0] if part.dtype == torch.bool else part[0] + 1
    assert module.describe()["sha256"] != before["sha256"]


def test_features_that_numpy_does_not_know_have_a_fingerprint(data: Data) -> None:
    data.x = data.x.bfloat16()
    before = FullGraph(data.clone()).describe()["sha256"]
    data.x[0, 0] += 1
    assert FullGraph(data).describe()["sha256"] != before


def test_a_batch_moves_whole_and_copies_nothing_that_is_there() -> None:
    graph = Neighborhood.from_edge_index(torch.tensor([[0], [1]]), num_nodes=2)
    mask = torch.tensor([True, False])
    batch = NodeBatch(torch.eye(2), graph, torch.tensor([0, 1]), mask)
    moved = batch.to("cpu")
    assert moved.neighborhood is graph and moved.x.data_ptr() == batch.x.data_ptr()
    assert moved.test_mask is None
    moved = NodeBatch(batch.x, graph, batch.y, mask, ~mask, (graph, graph)).to("meta")
    assert moved.test_mask is not None and moved.layers is not None
    parts = [moved.x, moved.y, moved.mask, moved.test_mask, moved.neighborhood.indptr]
    assert {str(part.device) for part in [*parts, *moved.layers]} == {"meta"}


def test_a_loss_is_that_of_the_masked_nodes_and_scores_are_without_dropout(data: Data) -> None:
    task, batch = new_task(dropout=0.0), FullGraph(data).train_batch(0)
    chosen = task(batch).log_softmax(1)[data.train_mask]
    expected = -chosen.gather(1, data.y[data.train_mask, None]).mean()
    torch.testing.assert_close(task.training_step(batch, 0), expected)
    task, batch = new_task(dropout=0.9), FullGraph(data).evaluation_batch()
    task.train()
    found = task.evaluate(batch)
    assert task.training and task.model.drop.training
    right = task.eval()(batch).argmax(1) == data.y
    assert found.val == pytest.approx(float(right[data.val_mask].float().mean()))
    assert found.test == pytest.approx(float(right[data.test_mask].float().mean()))
    assert found == task.evaluate(batch)


def test_evaluation_is_with_the_running_average(data: Data) -> None:
    torch.manual_seed(0)
    model = OneLayer()
    task = NodeTask(model, num_classes=3, optimizer=AdamOptions(average=0.75))
    passed = []
    for step in range(3):
        nn.init.constant_(model.linear.weight, step)
        task.on_train_batch_end(None, None, 0)
        passed.append(task.evaluated.linear.weight[0, 0].item())
    assert passed == [0.0, 0.25, 0.25 * 0.75 + 2 * 0.25]
    batch = FullGraph(data).evaluation_batch()
    score = task.evaluate(batch)
    nn.init.constant_(model.linear.weight, 100.0)
    assert score == task.evaluate(batch) and task.evaluated is not model
    assert len(list(task.configure_optimizers().param_groups[0]["params"])) == 2


def test_bucket_biases_have_their_own_step_and_what_is_frozen_is_left_out() -> None:
    module = nn.ModuleDict({"linear": nn.Linear(2, 2), "bucket_bias": Table()})
    optimizer = AdamOptions(lr=0.1, weight_decay=0.2, bias_lr=0.3).build(module)
    rest, biases = optimizer.param_groups
    assert (rest["lr"], rest["weight_decay"], len(rest["params"])) == (0.1, 0.2, 2)
    assert (biases["lr"], biases["weight_decay"]) == (0.3, 0.0)
    assert biases["params"][0] is module["bucket_bias"].table
    module["bucket_bias"].requires_grad_(False)
    module["linear"].bias.requires_grad_(False)
    for decoupled, kind in ((False, torch.optim.Adam), (True, torch.optim.AdamW)):
        optimizer = AdamOptions(decoupled=decoupled).build(module)
        assert type(optimizer) is kind
        assert [len(group["params"]) for group in optimizer.param_groups] == [1]


TASK = partial(NodeTask, nn.Linear(1, 1))
OF_GRAPHS = partial(GraphTask, nn.Linear(1, 1), num_outputs=1)


@pytest.mark.parametrize(("kind", "options", "message"), [
    (AdamOptions, {"lr": 0.0}, "lr: got 0.0"), (AdamOptions, {"lr": nan}, "lr: got nan"),
    (AdamOptions, {"weight_decay": -0.1}, "weight_decay: got -0.1"),
    (AdamOptions, {"bias_lr": -1.0}, "bias_lr: got -1.0"),
    (AdamOptions, {"average": 1.0}, "average: got 1.0"),
    (TASK, {"num_classes": 3, "metric": "f1"},
     "metric: got 'f1', expected one of accuracy, rocauc for multiclass"),
    (TASK, {"num_classes": 1}, "num_classes: got 1, expected 2 or more"),
    (TASK, {"num_classes": 3, "metric": "rocauc"}, "num_classes: got 3, expected 2 for 'rocauc'"),
    (TASK, {"num_classes": 3, "kind": "regression"}, "kind: got 'regression', expected one of"),
    (OF_GRAPHS, {"kind": "ranking"}, "kind: got 'ranking'"),
    (OF_GRAPHS, {"kind": "multiclass"}, "num_outputs: got 1"),
    (OF_GRAPHS, {"kind": "regression", "metric": "ap"}, "metric: got 'ap', expected one"),
    (OF_GRAPHS, {"kind": "multilabel", "statistics": (torch.ones(1),) * 2}, "statistics: got some"),
    (Recipe, {"epochs": 0}, "epochs: got 0"), (Recipe, {"lr": 0.0}, "lr: got 0.0"),
    (Recipe, {"ema": 1.0}, "ema: got 1.0"), (Recipe, {"clip": -1.0}, "clip: got -1.0"),
    (Augmentation, {"crop": -1}, "crop: got -1"),
    (Augmentation, {"erase": 1.5}, "erase: got 1.5, expected a probability"),
    (Augmentation, {"mixup": 0.7, "cutmix": 0.7}, "mixup . cutmix: got 1.4"),
])  # fmt: skip
def test_options_out_of_range(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_several_labels_of_a_node(data: Data) -> None:
    draw = torch.Generator().manual_seed(0)
    data.y = torch.randint(2, (len(data.x), 4), generator=draw).float()
    data.y[torch.rand(data.y.shape, generator=draw) < 0.2] = torch.nan  # labels that are missing
    torch.manual_seed(0)
    model = OneLayer(classes=4).eval()
    task = NodeTask(model, num_classes=4, metric="rocauc", kind="multilabel").eval()
    whole = FullGraph(data)
    whole.check_classes(4)
    batch = whole.train_batch(0)
    out, y = task(batch)[data.train_mask], data.y[data.train_mask]
    known = ~y.isnan()
    expected = -torch.where(y == 1, out.sigmoid(), 1 - out.sigmoid()).log()[known].mean()
    torch.testing.assert_close(task.training_step(batch, 0), expected)
    val, labels = task(batch)[data.val_mask].detach(), data.y[data.val_mask]
    columns = zip(labels.unbind(1), val.unbind(1), (~labels.isnan()).unbind(1), strict=True)
    by_label = [roc_auc_score(y[known], scores[known]) for y, scores, known in columns]
    assert task.evaluate(whole.evaluation_batch()).val == pytest.approx(sum(by_label) / 4)
    nn.init.constant_(model.linear.weight, torch.inf)
    assert task.evaluate(whole.evaluation_batch()).val == 0.0
    with pytest.raises(ValueError, match=r"data\.y: 4 labels of each node, expected 5"):
        whole.check_classes(5)
    data.y[3, 1] = 2.0
    told = r"data.y: 1 labels are neither 0, 1 nor NaN, the first at \[3, 1\] with 2"
    with pytest.raises(ValueError, match=told):
        FullGraph(data).check_classes(4)


def test_works_under_a_plain_trainer_and_refuses_logits_of_another_shape(data: Data) -> None:
    task = NodeTask(OneLayer(classes=4), num_classes=3)
    with pytest.raises(ValueError, match=r"model: outputs of shape \(60, 4\), expected \(60, 3\)"):
        task(FullGraph(data).evaluation_batch())
    task, module = new_task(), FullGraph(data)
    with plain_trainer() as trainer:
        trainer.fit(task, datamodule=module)
        expected = task.evaluate(module.evaluation_batch())
        assert float(trainer.callback_metrics["val"]) == pytest.approx(expected.val)
        tested = trainer.test(task, datamodule=module, verbose=False)
    assert tested[0]["test"] == pytest.approx(expected.test)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tasks take their device for a GPU; whether steps and scores go through a `Recording`."""
    called: list[str] = []
    call = Recording.__call__

    def told(self: Recording, *inputs: Any) -> Tensor:
        called.append("scores" if self._optimizer is None else "step")
        return call(self, *inputs)

    monkeypatch.setattr(Recording, "__call__", told)
    monkeypatch.setattr(NodeTask, "device", property(lambda task: torch.device("cuda")))
    return called


@pytest.mark.parametrize("options", [{}, {"average": 0.9}])
def test_recorded_training_is_the_same_training(
    data: Data, options: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    expected = fit(new_task(**options), FullGraph(data), epochs=5, progress=False)
    called = request.getfixturevalue("replayed")
    task = new_task(**options)
    found = fit(task, FullGraph(data), epochs=5, progress=False)
    assert called == ["step", "scores"] * 5
    assert without_time(found) == without_time(expected)
    assert task.automatic_optimization and task._replayed is None
    for epochs in (3, 5):
        how = {"epochs": epochs, "out_dir": tmp_path, "resume": epochs > 3, "progress": False}
        again = fit(new_task(**options), FullGraph(data), **how)
    assert without_time(again) == without_time(expected)


class Doubled(NodeTask):
    def training_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        return 2 * super().training_step(batch, batch_idx)


def two_classes(data: Data) -> FullGraph:
    data.y = (data.y > 0).long()
    return FullGraph(data)


@pytest.mark.parametrize(("make", "source", "expected"), [
    (new_task, lambda data: FullGraph(data, patterns.Sample(2)), []),
    (lambda: Doubled(OneLayer(), num_classes=3), FullGraph, []),
    (lambda: new_task(clip=1.0), FullGraph, []),
    (lambda: new_task(warmup=2), FullGraph, []),
    (lambda: NodeTask(OneLayer(2), num_classes=2, metric="rocauc"), two_classes, ["step"] * 2),
])  # fmt: skip
def test_steps_that_differ_or_are_overridden_and_other_scores_are_not_recorded(
    data: Data, make: Callable[[], NodeTask], source: Any, expected: Any, replayed: list[str]
) -> None:
    assert 0 < fit(make(), source(data), epochs=2, progress=False).val < 1
    assert replayed == expected


def test_scores_of_outputs_that_are_not_finite_are_the_worst(data: Data) -> None:
    task, batch = new_task(), FullGraph(data).evaluation_batch()
    assert task._scores(batch).tolist() == list(task.evaluate(batch))
    with torch.no_grad():
        task.model.linear.weight.fill_(inf)
    assert task._scores(batch)[1:].tolist() == [0.0, 0.0] == list(task.evaluate(batch))[1:]


def test_on_a_device_nodes_replace_masks(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = new_task().evaluate(FullGraph(data).evaluation_batch())
    monkeypatch.setattr(Tensor, "is_cpu", False)
    monkeypatch.setattr(csr, "rank_edges", None)  # of a process that has launched kernels
    batch = FullGraph(data).evaluation_batch()
    assert new_task().evaluate(batch) == expected
    counted = [len(nodes.nodes_of(mask)) for mask in (batch.mask, batch.test_mask)]
    monkeypatch.setattr(nodes.nodes_of, "_compute", None)  # they are known by now
    assert [len(y) for _, y in new_task().pairs(batch)] == counted == [20, 20]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_on_a_gpu_records_train_alike(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for fails in (False, True):
        task = NodeTask(GraphTransformer(8, 16, 3, num_layers=2, heads=2), num_classes=3)
        torch.manual_seed(0)
        for p in task.parameters():
            nn.init.normal_(p, std=0.1)
        if fails:
            launched = lambda self, *inputs: self._run(*inputs)  # noqa: E731
            monkeypatch.setattr(Recording, "__call__", launched)
        results.append(fit(task, FullGraph(data), epochs=8, progress=False))
    first, second = map(without_time, results)
    assert first[0] == second[0]
    for row, other in zip(first, second, strict=True):
        assert row == pytest.approx(other, rel=1e-4)
