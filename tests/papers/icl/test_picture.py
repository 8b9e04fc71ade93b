"""Pictures and pages of in-context learning: what they draw is what the rows say."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from graphtheory.papers.icl import picture
from graphtheory.papers.icl.prompts import Linear
from graphtheory.papers.icl.training import PromptTest, world

ERRORS = [
    {"domain": domain, "method": name, "length": at, "error": error + 0.01 * seed}
    for domain in ("in domain", "out of domain")
    for name, errors in (("ICL", (0.2, 0.0)), ("1-NN", (0.3, 0.1)))
    for at, error in zip((5, 40), errors, strict=True)
    for seed in range(3)
]
LOOKS = [
    {"step": step, "seed": seed, "domain": domain, "same": step / 10}
    | {
        f"{p} {k}": 0.1 * step + seed
        for p in ("query", "key")
        for k in ("whole", "along", "across")
    }
    for domain in ("in domain", "out of domain")
    for step in (0, 5, 10)
    for seed in (0, 1, 2)
]
NEURONS = [
    {"step": step, "neuron": n, "sign": 1 - 2 * n, "input norm": step + n, "label norm": step}
    | {"input cosine": 0.05 * step, "label cosine": -0.05 * step}
    for n in (0, 1)
    for step in (0, 5, 10)
]  # fmt: skip
PRUNED = [
    {"width": width, "rule": rule, "rate": rate, "error": rate * seed / 10}
    for width in (60, 200)
    for rule in ("random", "smallest first")
    for rate in (0.0, 0.5)
    for seed in range(3)
]
NAMES: Any = {
    "panel": "{domain}", "series": "by {method}", "at": "length", "xlabel": "contexts",
}  # fmt: skip
NORMS = [{"width": 60, "rank": r, "norm": 2 * r} for r in (0.25, 0.75)]
PICTURES: dict[str, Callable[[], Figure]] = {
    "prompt_errors": lambda: picture.prompt_errors(ERRORS, **NAMES, title="T", log=True),
    "prompt_mechanism": lambda: picture.prompt_mechanism(LOOKS, NEURONS, title="T"),
    "pruning_curves": lambda: picture.pruning_curves(PRUNED, NORMS, title="T"),
}


def test_errors_are_medians_in_percent_and_bars_stand_behind_the_curves() -> None:
    inside, _ = picture.prompt_errors(ERRORS, **NAMES, marks=(1.0,)).axes
    drawn = {str(n.get_label()): list(n.get_ydata()) for n in inside.get_lines()}
    assert drawn["by ICL"] == pytest.approx([21, 1]) and drawn["by 1-NN"] == pytest.approx([31, 11])
    assert inside.get_ylim()[0] < 0 < 33 < inside.get_ylim()[1]
    assert [1.0, 1.0] in [list(n.get_ydata()) for n in inside.get_lines()]
    first, second, twin = picture.pruning_curves(PRUNED, NORMS, small={60: 0.4}).axes
    assert [bar.get_height() for bar in twin.patches] == [0.5, 1.5]
    assert first.get_zorder() > twin.get_zorder() and not second.patches
    assert [40.0, 40.0] in [list(n.get_xdata()) for n in first.get_lines()]


def test_keys_and_queries_are_those_of_the_last_domain() -> None:
    changed = [row | {"query along": 9.0} if row["domain"] == "in domain" else row for row in LOOKS]
    norms, mass, *_ = picture.prompt_mechanism(changed, NEURONS).axes
    drawn = {str(n.get_label()): list(n.get_ydata()) for n in norms.get_lines()}
    assert drawn["query: along its pattern"] == pytest.approx([1.0, 1.5, 2.0])
    rest = {str(n.get_label()): list(n.get_ydata()) for n in mass.get_lines()}
    assert rest["others, in domain"] == pytest.approx([1, 0.5, 0])


def test_a_page_of_prompts_is_one_file(tmp_path: Path) -> None:
    source = world(6, 0).test(PromptTest(0.8, 5))
    prompts = source.sample(3, torch.Generator().manual_seed(0))
    weights = torch.rand(3, 5)
    value = prompts.answer * torch.tensor([1.0, 0.0, -1.0])
    page = picture.prompt_page(prompts, weights, value)
    page.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("data:image/svg+xml") == 3
    assert "1 of 3 answers are right" in text
    assert text.count(": wrong.</figcaption>") == 2
    assert " src=" not in text.replace(' src="data:', "") and "http" not in text.replace(
        "http-equiv", ""
    )
    plain = Linear().prompts(2, 61, 3, torch.Generator().manual_seed(0))
    assert "μ" not in picture.prompt_page(plain, torch.ones(2, 60) / 60, plain.answer).html()
    with pytest.raises(ValueError, match=r"attention: shape \(3, 4\), expected \(3, 5\)"):
        picture.prompt_page(prompts, weights[:, :4], value)
    with pytest.raises(ValueError, match="attention: 15 infinite or NaN, expected finite"):
        picture.prompt_page(prompts, weights * torch.nan, value)
    bare = replace(prompts, x=prompts.x[:, :1], y=prompts.y[:, :1], pattern=None)
    with pytest.raises(ValueError, match="prompts: got no contexts, expected at least one"):
        picture.prompt_page(bare, weights[:, :0], bare.answer)


def test_a_bar_is_a_weight_and_a_frame_the_pattern_of_the_query() -> None:
    source = world(6, 0).test(PromptTest(0.8, 5))
    prompt = source.sample(1, torch.Generator().manual_seed(0))
    weights = [0.1, 0.2, 0.3, 0.4, 0.0]
    (axes,) = picture._drawing(prompt, weights).axes
    assert [bar.get_height() for bar in axes.patches] == weights
    framed = [bar.get_linewidth() > 0 for bar in axes.patches]
    assert framed == prompt.same_pattern()[0].tolist() and 0 < sum(framed) < 5
    assert [text.get_text() for text in axes.texts] == [f"{weight:.2f}" for weight in weights]
