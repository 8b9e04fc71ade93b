"""The example models train alike in both libraries, and the script says how alike."""

import re

from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

from tests.benchmarks.conftest import run

EXAMPLES = [
    "gcn.py", "gat.py", "unimp_arxiv.py", "pna.py", "rgcn.py, FastRGCNConv", "rgcn.py, RGCNConv",
    "hgt_dblp.py", "han_imdb.py",
]  # fmt: skip
SAMPLED = ["graph_sage_unsup.py", "reddit.py", "to_hetero_mag.py"]


def printed_with(*options: str) -> str:
    result = run("end_to_end", "--threads", "1", *options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_quick_run_finds_the_same_losses() -> None:
    printed = printed_with("--quick")
    samples = WITH_PYG_LIB or WITH_TORCH_SPARSE
    assert samples or f"for want of torch-sparse or pyg-lib: {', '.join(SAMPLED)}" in printed
    for example in EXAMPLES + SAMPLED * samples:
        gap = re.search(rf"relative difference of the loss, {example}.*? ([\d.e+-]+) 1 ", printed)
        assert gap is not None
        assert float(gap[1]) < 1e-5  # dropout of features from other numbers differs by 1e-1
        assert f"times faster than PyG: {example}" in printed
    assert "without attention dropout" in printed


def test_memory_of_one_case_is_a_number_of_bytes() -> None:
    small = ["--nodes", "50", "--edges", "200"]
    assert int(printed_with(*small, "--measure", "unimp_arxiv.py on 50 nodes", "graphtheory")) >= 0
