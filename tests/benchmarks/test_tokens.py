from collections.abc import Callable
from types import ModuleType

import pytest

from tests.benchmarks.conftest import BENCHMARKS

hf = pytest.importorskip("transformers")

if not hasattr(hf.ViTModel(hf.ViTConfig(num_hidden_layers=1)), "layers"):
    pytest.skip("an older transformers builds its layers otherwise", allow_module_level=True)


@pytest.mark.parametrize("name", ["tokens", "timm_tokens"])
def test_docs_have_the_table_of_the_script(name: str, script: Callable[[str], ModuleType]) -> None:
    if name == "timm_tokens":
        pytest.importorskip("timm")
    page = (BENCHMARKS.parent / "docs" / "transformers.md").read_text()
    rows, reasons = script(name).table(("forward", "train", "undo")).split("\n\n")
    assert rows in page and reasons in page and "fails" not in rows
