"""The first page: short, its claims those of the committed rows, its names and links there."""

import importlib
import re
import runpy
import shlex
from code import InteractiveConsole
from pathlib import Path

import pytest

from graphtheory.lab.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(?:python)?\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
CLAIMS = {
    r"GAT trains (\S+) times as fast on 400,000 edges": (
        "cpu-end-to-end; times faster than PyG: gat.py on 20000 nodes; median"
    ),
    r"needs (\S+) % of PyG's": (
        "cpu; extra peak memory as a share of PyG's; nodes=169343; %; median; least"
    ),
    r"correlation (\S+), PNA": "infection; infection MCC; network=SPD transformer; nodes=30000",
    r"PNA with (\S+), GAT": "infection; infection MCC; network=PNA; nodes=30000",
    r"GAT with (\S+)\.\s": "infection; infection MCC; network=GAT; nodes=30000",
    r"DeiT-S trains up to (\S+) times as fast": (
        "cpu-vision; training step, DeiT-S, Merge(13) inside each block over DeiT-S; batch=32; "
        "median"
    ),
}


GOALS = {  # what newcomers come for: a page and words of it
    "distances in my own model": ("tutorials/train.md", "SPDTransformerConv"),
    "a faster ViT": ("tutorials/sparse-vit.md", "apply("),
    "my own CSV": ("howto/own-data.md", "## From CSV files"),
    "a faster GAT": ("tutorials/speed-up.md", "accelerate("),
    "OGB": ("howto/graph-prediction.md", "ogbg-"),
    "a large graph": ("howto/large-graphs.md", "Loader("),
    "several GPUs": ("howto/several-devices.md", "## Several GPUs of one machine"),
    "which model": ("choose.md", "## A model for nodes"),
    "to get data": ("howto/data.md", "--download"),
    "to log to W&B": ("howto/several-devices.md", "W&B"),
}


@pytest.mark.parametrize("goal", GOALS)
def test_two_clicks_lead_to_what_newcomers_want(goal: str) -> None:
    page, words = GOALS[goal]
    assert "](docs/index.md)" in README
    assert f"]({page})" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert words in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_it_is_read_in_a_minute_also_as_text() -> None:
    lines = README.splitlines()
    assert len(lines) <= 140
    assert [line for line in lines if len(line) > 100] == []
    assert "<!--" not in README
    assert all(words in README for words in ("pip install .", "make run", "make test"))
    assert "index-url" not in README and "--find-links" not in README


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_of_its_first_lines_is_that_of_a_row(claim: str) -> None:
    check = runpy.run_path(str(ROOT / "docs" / "check_numbers.py"))
    (shown,) = re.findall(claim, README.replace("\n  ", " "))
    (value,) = check["chosen"](CLAIMS[claim])
    assert check["agrees"](shown, value), (shown, value)
    assert not check["agrees"](f"{float(shown) + 1}", value)


@pytest.mark.timeout(400)
def test_its_blocks_run_in_order_as_they_are_pasted(tmp_path, monkeypatch, capsys) -> None:
    """Python at a prompt, where an empty line ends a class and a loop does not end without one."""
    monkeypatch.chdir(tmp_path)
    assert all(line.startswith("pip install ") for line in BLOCKS[0].splitlines())
    prompt = InteractiveConsole({"__name__": "readme"})
    told = ("graphtheory: ", "torch.Size", "gt - gcn", "merged: ")
    for block, wanted in zip(BLOCKS[1:], told, strict=True):
        if "transformers" in block:
            pytest.importorskip("transformers", reason="needs transformers")
        if block.startswith("graphtheory "):
            assert main(shlex.split(block)[1:]) == 0
        else:
            assert not [prompt.push(line) for line in (*block.splitlines(), "")][-1]
        said = capsys.readouterr()
        assert not re.search(r"^\w*Error", said.err, flags=re.MULTILINE), said.err
        assert wanted in said.out
    assert (tmp_path / "merged-vit.pt2").exists()


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", README))))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_names_of_the_systems_can_be_imported() -> None:
    text = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("|")]
    names = [n for row in rows for n in re.findall(r"`([a-z_.]+\.[A-Za-z_]+)`", row)]
    assert len(names) >= 40
    for name in names:
        if name.startswith("model."):
            continue
        module, _, attribute = f"graphtheory.{name.removeprefix('graphtheory.')}".rpartition(".")
        try:
            if not hasattr(importlib.import_module(module), attribute):
                importlib.import_module(f"{module}.{attribute}")
        except ModuleNotFoundError as missing:
            if str(missing.name).startswith("graphtheory"):
                raise  # any other is of an optional package
