import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood
from graphtheory.papers import shallow_trials
from graphtheory.papers.shallow import PatternStart, ShallowAttention, orthonormal
from graphtheory.papers.shallow_trials import Boundary, Curves, Phases, Speed, ends
from graphtheory.patterns import AddSelf, Compose, KHop
from tests.papers.conftest import drawn


def test_rows_are_orthonormal_and_no_more_than_dimensions(generator: torch.Generator) -> None:
    rows = orthonormal(4, 4, generator)
    torch.testing.assert_close(rows @ rows.t(), torch.eye(4))
    assert not torch.equal(rows, orthonormal(4, 4, generator)) and rows.is_contiguous()
    for count in (0, 5):
        with pytest.raises(ValueError, match=f"count: got {count}, expected 1 to dim=4"):
            orthonormal(count, 4, generator)


NODES, DIM, TRIALS = 5, 4, 3


def graph(trials: int = TRIALS) -> Neighborhood:
    """A path of five nodes for each trial, two hops and the node itself."""
    path = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 4], [1, 2, 3, 4, 0, 1, 2, 3]])
    edges = torch.cat([path + NODES * t for t in range(trials)], 1)
    return Compose(KHop(2), AddSelf())(Neighborhood.from_edge_index(edges, NODES * trials))


def net(positions: int = 1, trials: int = TRIALS) -> ShallowAttention:
    sizes = {"trials": trials, "buckets": 2, "positions": positions}
    made = ShallowAttention(DIM, (3, 2), 7, **sizes, generator=drawn())
    with torch.no_grad():
        made.b.normal_(generator=drawn(1))
    return made


def by_hand(model: ShallowAttention, t: int, x: Tensor, n: int, place: int = 0) -> Tensor:
    """Eq. (3.1) of one node, source by source."""
    heard = [s for s in range(NODES) if abs(s - n) <= 2]
    query = model.W_Q[t] @ x[n]
    bias = [model.b[t, min(abs(s - n), 1)] for s in heard]
    keys = [model.W_K[t] @ x[s] for s in heard]
    logits = torch.stack([key @ query + b for key, b in zip(keys, bias, strict=True)])
    weights = logits.softmax(0)
    total = sum(w * (model.W_V[t] @ x[s]) for w, s in zip(weights, heard, strict=True))
    return model.a[t, place] @ torch.relu(model.W_O[t] @ total)


def test_each_trial_is_the_formula_with_gradients_of_its_own() -> None:
    model, x = net(), torch.randn(TRIALS * NODES, DIM, generator=drawn(2))
    out = model(x, graph())
    for t, own in enumerate(x.split(NODES)):
        wanted = torch.stack([by_hand(model, t, own, n) for n in range(NODES)])
        torch.testing.assert_close(out[t], wanted)
        torch.testing.assert_close(model.trial(t)(own, graph(1))[0], wanted)
    weights = model.attention(x, graph())
    rows = torch.zeros(TRIALS * NODES).index_add(0, graph().targets(), weights[:, 0].detach())
    torch.testing.assert_close(rows, torch.ones(TRIALS * NODES))
    even = model.without_attention().attention(x, graph())[:, 0]
    torch.testing.assert_close(even, 1 / graph().degree()[graph().targets()].float())
    model(x, graph())[1].sum().backward()
    alone = model.trial(1)
    alone(x[NODES : 2 * NODES], graph(1)).sum().backward()
    for name, value in model.named_parameters():
        slope, wanted = value.grad, alone.get_parameter(name).grad
        assert slope is not None and wanted is not None
        torch.testing.assert_close(slope[1], wanted[0])
        assert not slope[0].any() and not slope[2].any()


def test_some_rows_and_a_position_each() -> None:
    model, x = net(positions=2), torch.randn(TRIALS * NODES, DIM, generator=drawn(2))
    nodes = torch.tensor([[3, 1], [0, 4], [2, 2]])
    ids = (nodes + NODES * torch.arange(TRIALS)[:, None]).flatten()
    place = torch.tensor([1, 0, 0, 1, 1, 1])
    out = model(x, graph().rows(ids), ids, place)
    for t, i in product(range(TRIALS), range(2)):
        own, n, at = x[t * NODES :][:NODES], int(nodes[t, i]), int(place[2 * t + i])
        wanted = by_hand(model, t, own, n, at)
        torch.testing.assert_close(out[t, i], wanted)


@pytest.mark.parametrize("matched", [2, 10])
def test_a_start_keeps_the_assumption(matched: int) -> None:
    model = ShallowAttention(20, 20, 40, trials=2, buckets=4)
    mu = torch.linalg.qr(torch.randn(2, 20, 10, generator=drawn()))[0].transpose(1, 2)
    PatternStart(sigma=0.1, delta=0.2, matched=matched)(model, mu, drawn())
    with torch.no_grad():
        p, q, r = (w @ mu.transpose(1, 2) for w in (model.W_V, model.W_K, model.W_Q))
    for image, error in ((p, 0.1), (q, 0.2), (r, 0.2)):
        assert bool((torch.linalg.matrix_norm(image, 2) <= 1 + 1e-5).all())
        gram = image.transpose(1, 2) @ image
        assert bool(((gram - torch.eye(10)).abs() <= 2 * error + error**2 + 1e-5).all())
        assert float((gram - torch.eye(10)).abs().max()) > 0.1 * error
    near = (q - r).norm(dim=1) <= 0.4 + 1e-5  # both within delta of the same vector
    assert bool(near[:, :2].all()) and bool((near[:, 2:] == (matched == 10)).all())
    assert float(model.W_O.detach().std()) == pytest.approx(0.01, rel=0.1)


def test_a_is_fixed_and_of_the_given_size() -> None:
    model = net()
    assert "a" not in dict(model.named_parameters())
    torch.testing.assert_close(model.a.abs(), torch.full_like(model.a, 7**-0.5))
    assert float(ShallowAttention(3, 3, 8, scale=1 / 8).a.abs().mean()) == 1 / 8


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("width", lambda: ShallowAttention(3, 3, 0)),
        ("neighborhood", lambda: net()(torch.zeros(15, DIM), graph().rows(torch.arange(4)))),
        ("targets", lambda: net()(torch.zeros(15, DIM), graph().rows(torch.arange(3)))),
        ("position", lambda: net(2)(torch.zeros(15, DIM), graph())),
        ("distance", lambda: net()(torch.zeros(15, DIM), Neighborhood.from_edge_index(
            torch.zeros(2, 1, dtype=torch.int64), 15))),
        ("delta", lambda: PatternStart(delta=-1)),
        ("mu", lambda: PatternStart()(ShallowAttention(9, 4, 5), torch.eye(9)[None], drawn())),
    ],
)  # fmt: skip
def test_bad_input_is_named(name: str, work) -> None:
    with pytest.raises(ValueError, match=name):
        work()


def cell(value: float, labels: int, hinges: list[float], setting: str = "v") -> list[dict]:
    about = {"case": "GT", setting: value, "labels": labels}
    return [about | {"seed": seed, "hinge": hinge} for seed, hinge in enumerate(hinges)]


def grid(seeds: int, **options: Any) -> Phases:
    case = SimpleNamespace(name="GT")
    return Phases(cases=(case,), setting="v", seeds=seeds, values=(), labels=(), **options)


def test_counts_of_successes_at_what_is_shown_of_a_value() -> None:
    rows = [
        *cell(0.0, 4, [0, 0, 1]), *cell(0.0, 8, [0, 0, 0]),
        *cell(0.2, 4, [1, 1, 1e-3]), *cell(0.2, 8, [1, 1, 9e-4]),
    ]  # fmt: skip
    law = Boundary("v", (-2,), letter="1 - v", shown=lambda v: 1 - v)
    found = law.successes(grid(3), rows)["GT"]
    assert found.values.tolist() == [1.0, 0.8] and found.labels.tolist() == [4, 8]
    assert found.counts.tolist() == [[2, 3], [0, 1]]
    shown = law.show(grid(3), rows)
    assert list(shown.table.columns)[:3] == ["case", "1 - v = 1", "1 - v = 0.8"]
    share = [row for row in shown.rows if row.name == "share of successes"]
    assert [row.value for row in share] == pytest.approx([2 / 3, 1, 0, 1 / 3])
    assert share[-1].parameters == {"case": "GT", "1 - v": 0.8, "labels": 8}
    loss = [row for row in shown.rows if row.name == "test hinge loss"]
    assert loss[-1].median == 1 and loss[-1].repeats == 3


def test_the_law_of_the_labels_at_which_half_succeed() -> None:
    law = Boundary("v", (-1,))
    rows = []
    for value, labels in product((0.2, 0.4, 0.8), (4, 8, 16, 32)):
        rows += cell(value, labels, [float(labels * value < 3)] * 20)
    found = law.claim.find(law.successes(grid(20), rows)["GT"])
    assert found is not None and found.exponent == pytest.approx(-1, abs=0.2)
    shown = law.show(grid(20), rows)
    (line,) = shown.table.rows
    assert 8 < float(line[1]) < 16 and line[-2:] == [str(found), "-1"]
    assert shown.rows[-1].name == "exponent of the labels, upper end"
    assert len(law.picture(grid(20), rows, "title").axes) == 2  # a panel and the shades
    assert "claimed -1: not found" in law.claim(grid(20), rows).text  # no trial contradicts -0.99


def test_a_quick_form_has_the_ends() -> None:
    assert ends((1, 2, 3)) == (1, 3) and ends((1,)) == (1,) and ends(()) == ()


CASE = SimpleNamespace(name="GT")
GRID = Curves(cases=(CASE,), setting="v", values=(0.2, 0.4, 0.8), labels=8, every=2, first=5)


def curve(value: float, seed: int, *points: tuple[int, float], key: str = "hinge") -> list[dict]:
    about = {"case": "GT", "v": value, "seed": seed}
    return [about | {"step": step, key: measure} for step, measure in points]


@pytest.mark.parametrize(("until_learned", "ends"), [(True, [False, True]), (False, [False] * 2)])
def test_looks_at_some_steps_end_where_all_have_learned(until_learned, ends: list[bool]) -> None:
    grid = Curves(
        cases=(CASE,), setting="v", values=(), labels=8, every=2, first=5,
        until_learned=until_learned,
    )  # fmt: skip
    model: Any = None
    losses = iter([[0.0, 1.0], [0.0, 0.0]])
    watch, rows = grid.watch(CASE, 0.4, lambda _: [{"hinge": h} for h in next(losses)])
    assert [watch(0, model), watch(1, model), watch(2, model)] == [ends[0], False, ends[1]]
    assert rows == [
        {"case": "GT", "v": 0.4, "step": step, "seed": seed, "hinge": hinge}
        for step, seed, hinge in ((0, 5, 0.0), (0, 6, 1.0), (2, 5, 0.0), (2, 6, 0.0))
    ]


def test_speed_leaves_out_where_a_trial_never_arrives() -> None:
    law = Speed("v", (-1,), (0.1001,))
    rows = []
    for (value, last), seed in product(((0.2, 1), (0.4, 40), (0.8, 20)), range(3)):
        low = 1.0 if value == 0.2 and seed else 0.1
        rows += curve(value, seed, (0, 1.0), (last * (1 + seed / 100), low))
    shown = law.show(GRID, rows)
    (line,) = shown.table.rows
    assert line[:2] == ["GT, loss below 0.1001", "none"] and line[-1] == "-1"
    parts = {row.name: row for row in reversed(shown.rows)}
    assert parts["exponent of the steps"].value == pytest.approx(-1, abs=0.01)
    assert parts["exponent of the steps"].parameters == {"case": line[0]}
    share = parts["share of trials that get there"]
    assert share.value == pytest.approx(1 / 3)
    assert share.parameters == {"case": "GT", "loss": 0.1001, "v": 0.2}
    assert parts["steps of those"].value < 1.01 < math.inf
    (claim,) = law.claims
    assert "steps ~ (v)^-1.00" in claim(GRID, rows).text and "holds" in claim(GRID, rows).text
    assert law.picture(GRID, rows, "title") is not None
    assert law.picture(GRID, [row for row in rows if row["v"] == 0.2], "title") is None


def test_attention_at_the_end_and_over_the_steps() -> None:
    def told(last: float) -> list[str]:
        rows = [
            row
            for seed in range(3)
            for row in curve(
                0.5, seed, *((s, m + seed / 100) for s, m in ((0, 0.2), (10, 0.5), (20, last))),
                key="mass",
            )
        ]  # fmt: skip
        claims = shallow_trials.attention_claims("relevant nodes")
        return [claim(GRID, rows).text for claim in claims]

    close, rises = told(0.96)
    assert close.startswith("GT: attention on relevant nodes is 0.970 [0.96") and "holds" in close
    assert "rises with the steps (1.00 [1.00, 1.00])" in rises and "holds" in rises
    close, rises = told(0.6)
    assert "at step = 20, claimed at least 0.95: not found" in close and "holds" in rises
    assert "falls with the steps" in told(0.1)[1] and "not found" in told(0.1)[1]
