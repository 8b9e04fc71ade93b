from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_the_table_of_the_docs_is_what_the_script_prints(
    script: Callable[[str], ModuleType],
) -> None:
    pytest.importorskip("timm")
    page = (Path(__file__).parents[2] / "docs" / "transformers.md").read_text()
    rows, reasons = script("timm_tokens").table(("forward", "train", "undo")).split("\n\n")
    assert rows in page and reasons in page and "fails" not in rows
