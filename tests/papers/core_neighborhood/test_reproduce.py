"""The tables of appendix B from the command line to their files."""

from pathlib import Path

import pytest

from graphtheory.lab.cli import main


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("table-b-1", ("82.05", "88.02", "90.78")),  # printed, printed, found
        ("table-b-5 --quick", ("95.68", "86.41", "95.49")),
        ("table-b-6", ("26659", "found")),
        ("table-b-8 --dataset Actor", ("1520.00", "667.00", "found")),
        ("fig-b-5 --quick", ("decreasing", "falls in 2 of 2 steps")),
    ],
)
def test_a_table_prints_what_is_found_beside_what_is_printed(
    words: str,
    numbers: tuple[str, ...],
    data_root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["reproduce", *words.split(), "--root", str(data_root), "--out", str(tmp_path)]
    assert main(given) == 0
    printed = capsys.readouterr().out
    assert all(number in printed for number in numbers)
    assert list(tmp_path.glob("*.csv"))
