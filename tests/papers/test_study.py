import json
from pathlib import Path

import pytest
import torch

from graphtheory.papers.study import Row, Step, Study


class Squares(Study):
    """Steps 0..count-1; a step that is told to fail is interrupted."""

    def __init__(self, count: int, fails: int | None = None) -> None:
        self.count, self.fails, self.ran = count, fails, list[int]()

    def steps(self) -> list[Step]:
        return [Step(f"step {i}", {"of": i}, lambda i=i: self.square(i)) for i in range(self.count)]

    def square(self, i: int) -> list[Row]:
        if i == self.fails:
            raise KeyboardInterrupt
        self.ran.append(i)
        return [{"i": i, "square": i * i / 3}] * 2


def test_without_a_file_every_step_runs() -> None:
    told: list[tuple[str, int, int]] = []
    study = Squares(2)
    rows = study.run(lambda *step: told.append(step))
    assert [r["i"] for r in rows] == [0, 0, 1, 1]
    assert told == [("step 0", 0, 2), ("step 1", 1, 2)]
    assert study.run() == rows and study.ran == [0, 1, 0, 1]


def test_an_interrupted_study_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    kept = tmp_path / "made" / "study.jsonl"
    with pytest.raises(KeyboardInterrupt):
        Squares(4, fails=2).run(kept=kept)
    assert [json.loads(line)["settings"] for line in kept.read_text().splitlines()] == [
        {"of": 0}, {"of": 1},
    ]  # fmt: skip
    kept.write_text(kept.read_text() + '{"settings": {"of": 2}, "ro')  # cut short by a crash
    later = Squares(4)
    told: list[int] = []
    assert later.run(lambda _, done, __: told.append(done), kept=kept) == Squares(4).run()
    assert later.ran == told == [2, 3]


def test_steps_side_by_side_make_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(Squares, "side_by_side", True)
    kept, told = tmp_path / "study.jsonl", list[tuple[int, int]]()
    with pytest.raises(KeyboardInterrupt):
        Squares(9, fails=5).run(kept=kept)
    done = len(kept.read_text().splitlines())
    assert done < 9
    later = Squares(9)
    rows = later.run(lambda _, done, total: told.append((done, total)), kept=kept)
    assert told == [(i, 9) for i in range(done, 9)] and len(later.ran) == 9 - done
    assert [row["i"] for row in rows[::2]] == list(range(9))


def test_more_steps_are_added(tmp_path: Path) -> None:
    kept = tmp_path / "study.jsonl"
    Squares(1).run(kept=kept)
    more = Squares(3)
    assert len(more.run(kept=kept)) == 6 and more.ran == [1, 2]


@pytest.mark.parametrize("content", ["no json\n", '{"settings": {}}\n', "[1]\n"])
def test_another_file_is_refused_by_name(tmp_path: Path, content: str) -> None:
    kept = tmp_path / "study.jsonl"
    kept.write_text(content)
    with pytest.raises(ValueError, match=r"line 1 of .*study\.jsonl is no finished run"):
        Squares(1).run(kept=kept)
    assert kept.read_text() == content
