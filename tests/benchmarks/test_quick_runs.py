"""Benchmarks in this process: every form is measured, after it was compared with the others."""

from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from torch import nn

from tests.benchmarks.conftest import of

Captured = pytest.CaptureFixture[str]
needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed"
)


def printed(module: ModuleType, capsys: Captured, **sizes: int) -> list[str]:
    module.main(threads=torch.get_num_threads(), quick=True, **sizes)
    return capsys.readouterr().out.splitlines()


@of("busy")
def test_a_step_runs_on_its_threads_and_awake_where_it_may_not_sleep(module: ModuleType) -> None:
    look, threads, seen = module.Rest.look, torch.get_num_threads(), []

    def step() -> None:
        seen.append((torch.get_num_threads(), module.Rest.look is look))

    try:
        module.on(1, True, step)()
        module.on(2, False, step)()
    finally:
        torch.set_num_threads(threads)
    assert seen == [(1, True), (2, False)] and module.Rest.look is look
    with module.busy(2) as started:
        assert [process.poll() for process in started] == [None, None]
    assert None not in [process.poll() for process in started]  # they end with the rounds


@of("fresh_edges")
def test_every_call_gets_new_edges_and_a_layer_is_compared_and_timed(module: ModuleType) -> None:
    seen: list[torch.Tensor] = []

    class Layer(nn.Module):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            seen.append(edges)
            return x

    pool = [torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)]
    call = module.call_of(Layer(), torch.randn(3, 1, requires_grad=True), pool, train=False)
    for _ in range(4):
        call()
    assert len({id(edges) for edges in seen}) == 4
    assert [int(edges[0, 0]) for edges in seen] == [1, 0, 1, 0]
    rows = module.measure("GINConv", 100, 8, torch.get_num_threads(), 1)
    names = [row.name for row in rows if "over" in row.name]
    assert len(names) == 4 and names[0] == "GINConv, forward, processor time, PyG over graphtheory"


@of("prompts")
def test_prompts_of_every_kind_are_drawn_and_counted(module: ModuleType, capsys: Captured) -> None:
    lines = printed(module, capsys)
    assert len(lines) == 4 and all("1/s" in line for line in lines)
    drawn = module.draws(7, 5, 30)
    assert len(drawn["in-context prompts"]()) == 7
    assert drawn["in-context prompts, as columns"]().shape == (7, 6, 60)
    assert len(drawn["linear regression"]()) == 7
    assert len(drawn["chains of thought"]().query) == 7


@needs_transformers
@of("gpt")
def test_both_gpts_are_measured_if_they_are_the_same(module: ModuleType, capsys: Captured) -> None:
    lines = printed(module, capsys)
    assert len(lines) == 6
    assert any(line.startswith("training step, Hugging Face GPT-2 over graph") for line in lines)
    ours, theirs = module.pair(9, 8, 2, 2)
    ours.blocks[1].mlp.fc2.weight.data.mul_(2)
    with pytest.raises(AssertionError, match="differ"):
        module.assert_same(ours, theirs, torch.randn(2, 9, 8), None)


@of("heads")
def test_both_forms_of_a_head_are_measured_if_they_are_the_same(
    module: ModuleType, in_this_process: None, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    said = "\n".join(printed(module, capsys, width=16, depth=2, heads=2, hidden=8))
    pair = "TransformerEncoder over TransformerHead"
    for what in (f"head forward+backward, {pair}", f"head extra peak memory, {pair}",
                 f"{pair} with maps of attention", "part attention"):  # fmt: skip
        assert what in said
    forward = module.Theirs.forward
    monkeypatch.setattr(module.Theirs, "forward", lambda self, x: 1.01 * forward(self, x))
    about = {"batch": 4, "width": 8, "depth": 1, "heads": 2, "hidden": 8}
    with pytest.raises(AssertionError, match="differs by"):
        module.times(about, 1)


@of("topk")
def test_every_form_of_k_nearest_attention_is_measured_if_it_is_the_same(
    module: ModuleType, in_this_process: None, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    lines = printed(module, capsys)
    assert len(lines) == 2 * (4 + 2 * 2)  # times and memory: four forms, ours against two others
    for what in ("forward+backward", "extra peak memory"):
        assert any(line.startswith(f"{what}, masked form over topk_attention ") for line in lines)
    masked = module.masked
    monkeypatch.setattr(module, "masked", lambda *nodes: masked(*nodes[:3], nodes[3] + 1))
    with pytest.raises(AssertionError, match="differs by"):
        module.times({"batch": 1, "tokens": 9, "k": 4, "heads": 1, "head_dim": 3}, repeats=1)


@needs_transformers
@of("vision")
def test_every_vision_transformer_is_measured_if_deit_is_the_same(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    lines = printed(module, capsys)
    assert len(lines) == 2 * (8 + 7)  # forward and training: eight networks, seven beside DeiT-S
    for what in ("forward", "training step"):
        assert any(line.startswith(f"{what}, DeiT-S, TopK(0.5) over DeiT-S") for line in lines)
    assert all("gmacs" in line for line in lines)
    image, networks = torch.zeros(1, 3, 32, 32), module.networks(module.SMALL)
    macs = [module.count_macs(model, image).total for model in networks.values()]
    ours, theirs, *fewer, nearest = macs
    assert ours == theirs == nearest and max(fewer) < 0.8 * ours

    def other(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        return model(images) + float(isinstance(model, module.Logits))

    monkeypatch.setattr(module, "forward", other)
    with pytest.raises(AssertionError, match="not close"):
        module.rows_of(module.SMALL, 1, 1, 1)
