"""The page of prompts is one file."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphtheory.papers.icl.picture import _drawing, prompt_page
from graphtheory.papers.icl.prompts import Linear
from graphtheory.papers.icl.training import PromptTest, world


def test_a_page_of_prompts_is_one_file(tmp_path: Path) -> None:
    source = world(6, 0).test(PromptTest(0.8, 5))
    prompts = source.sample(3, torch.Generator().manual_seed(0))
    weights = torch.rand(3, 5)
    value = prompts.answer * torch.tensor([1.0, 0.0, -1.0])
    page = prompt_page(prompts, weights, value)
    page.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("data:image/svg+xml") == 3
    assert "1 of 3 answers are right" in text
    assert text.count(": wrong.</figcaption>") == 2
    assert " src=" not in text.replace(' src="data:', "") and "http" not in text.replace(
        "http-equiv", ""
    )
    plain = Linear().prompts(2, 61, 3, torch.Generator().manual_seed(0))
    assert "μ" not in prompt_page(plain, torch.ones(2, 60) / 60, plain.answer).html()
    with pytest.raises(ValueError, match=r"attention: shape \(3, 4\), expected \(3, 5\)"):
        prompt_page(prompts, weights[:, :4], value)
    with pytest.raises(ValueError, match="attention: 15 infinite or NaN, expected finite"):
        prompt_page(prompts, weights * torch.nan, value)
    bare = replace(prompts, x=prompts.x[:, :1], y=prompts.y[:, :1], pattern=None)
    with pytest.raises(ValueError, match="prompts: got no contexts, expected at least one"):
        prompt_page(bare, weights[:, :0], bare.answer)


def test_a_bar_is_a_weight_and_a_frame_the_pattern_of_the_query() -> None:
    source = world(6, 0).test(PromptTest(0.8, 5))
    prompt = source.sample(1, torch.Generator().manual_seed(0))
    weights = [0.1, 0.2, 0.3, 0.4, 0.0]
    (axes,) = _drawing(prompt, weights).axes
    assert [bar.get_height() for bar in axes.patches] == weights
    framed = [bar.get_linewidth() > 0 for bar in axes.patches]
    assert framed == prompt.same_pattern()[0].tolist() and 0 < sum(framed) < 5
    assert [text.get_text() for text in axes.texts] == [f"{weight:.2f}" for weight in weights]
