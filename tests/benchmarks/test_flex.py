"""The benchmark beside FlexAttention: masks are what they say, every form is timed and compared."""

from types import ModuleType

import pytest
import torch


@pytest.fixture
def flex(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, without torch's compiler, which takes many seconds."""
    monkeypatch.setattr(torch, "compile", lambda form, **options: form)
    return module


@pytest.mark.parametrize("kind", ["blocks", "pairs", "documents"])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_mask_lets_about_its_share_through(flex: ModuleType, kind: str, share: float) -> None:
    place = torch.arange(1024)
    allowed = flex.KINDS[kind](1024, share)(place, place, place[:, None], place)
    assert bool(allowed.diagonal().all())
    assert share / 2 <= allowed.float().mean() <= min(1.0, 2 * share)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_every_form_is_timed(flex: ModuleType) -> None:
    names = {row.name for row in flex.times("pairs", 0.3, 130, 2, 4, 1)}
    for form in (flex.ADAPTER, flex.DENSE, flex.FLEX):
        assert f"forward, {form} over {flex.OURS}" in names
    assert f"forward+backward, {flex.FLEX}" not in names


def test_a_wrong_form_is_not_timed(flex: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "torch_flex", lambda query, *rest, **options: query)
    with pytest.raises(AssertionError, match="differs by"):
        flex.times("pairs", 0.3, 64, 1, 4, 1)
    with pytest.raises(AssertionError, match="differs by"):
        flex.graphormer("molecules", 60, 2, 4, 1)


@pytest.mark.parametrize("kind", ["molecules", "power-law"])
def test_graphs_of_graphormer(flex: ModuleType, kind: str) -> None:
    graph, sizes = flex.graph_of(kind, 300)
    first = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    source, target = graph.edge_index().long()
    assert int(sizes.sum()) == graph.num_dst == pytest.approx(300, rel=0.2)
    assert (first[source] == first[target]).all()  # no edge leaves its graph
    assert len(sizes) == {"molecules": 13, "power-law": 1}[kind]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kind", ["molecules", "power-law"])
def test_every_form_of_graphormer_is_timed(flex: ModuleType, kind: str) -> None:
    rows = flex.graphormer(kind, 60, 2, 4, 1)
    names = {row.name for row in rows}
    for form in (flex.BALL, flex.DENSE, flex.FLEX):
        assert f"Graphormer forward, {form} over {flex.OURS}" in names
    assert f"Graphormer forward+backward, {flex.FLEX}" not in names  # it raises on a CPU
    assert rows[0].parameters["near"] < rows[0].parameters["pairs"]
