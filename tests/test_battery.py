"""The battery at a hundredth of its size, and that it can fail."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from battery.after import after
from battery.answers import OPERATIONS, faulty_pieces, planted_faults, right_answers
from battery.bad_input import bad_input, complaint
from battery.bits import loader_workers, threads
from battery.bounds import bounds
from battery.caches import caches
from battery.damage import FORMATS, _of_format, damage
from battery.derivatives import long_offsets, registration
from battery.faults import workers
from battery.files import files
from battery.forms import forms
from battery.fuzz import fuzz, verdict
from battery.half import half_precision
from battery.hostile import hostile
from battery.layers import against_pyg, laws
from battery.line import Line
from battery.locality import locality
from battery.memory import quadratic
from battery.record import keep
from battery.threads import several_callers

# torch raises at the signal of a killed worker, wherever that arrives: at times in a finalizer, or
# before a socket that was just opened has an owner to close it.
KILLS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize(
    ("part", "share"),
    [
        (right_answers, 0.004), (planted_faults, 0.03), (half_precision, 0.02), (locality, 0.03),
        (damage, 0.04), (hostile, 1.0), (threads, 0.004), (bad_input, 1.0), (fuzz, 0.01),
        (registration, 1.0), (faulty_pieces, 0.01), (long_offsets, 0.5),
        pytest.param(workers, 0.1, marks=KILLS), (against_pyg, 0.004), (laws, 0.02),
        (quadratic, 1.0), (loader_workers, 1.0), (caches, 0.01), (bounds, 0.01),
        (after, 0.006), (forms, 0.02),
        (several_callers, 0.004), (files, 0.004),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_every_promise_holds_and_its_control_is_seen(
    part, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("battery.derivatives.ARGUMENTS", 1)  # of each op, of six
    lines = part(share, 1)
    assert lines and all(line.trials for line in lines)
    assert all(line.holds for line in lines), "\n".join(map(str, lines))


def test_no_fault_is_planted_where_a_layer_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("flow: got a pair")

    monkeypatch.setattr("battery.forms.accelerate", lambda layer: setattr(layer, "forward", refuse))
    (line,) = forms(0.004, 0)
    assert not line.broken and not line.planted
    assert line.figures["calls that ours alone refuses"] > 0


def test_a_line_without_a_control_or_without_trials_does_not_hold() -> None:
    good = Line("part", "promise", "control", trials=9, planted=1, caught=1)
    assert good.holds and "holds" in str(good) and "33 %" in str(good)
    for change in ({"planted": 0, "caught": 0}, {"caught": 0}, {"trials": 0}, {"broken": ["x"]}):
        assert not replace(good, **change).holds
    assert "BROKEN" in str(replace(good, broken=["case 3"])) and good.as_dict()["holds"]


def test_a_reader_or_an_operation_that_is_wrong_breaks_the_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for form in FORMATS:
        assert _of_format(replace(form, read=form.unsafe), 60, 1).broken, form.name
    attention = OPERATIONS[0]
    wrong = replace(attention, call=lambda t, nb, b: 1.0001 * attention.call(t, nb, b))
    monkeypatch.setattr("battery.answers.OPERATIONS", (wrong,))
    assert all(line.broken for line in right_answers(0.004, 1))


def test_an_unhelpful_refusal_is_told_from_a_helpful_one() -> None:
    def refuse(k: int, said: str) -> None:
        raise ValueError(said)

    for said, good in (
        ("k: got 0, expected 1 or more", True), ("got 0, expected 1 or more", False),
        ("k: got 0", False), ("k: expected more", False),
    ):  # fmt: skip
        found = complaint(refuse, {"k": 0, "said": said}, ValueError, "k")
        assert (found == "") is good, (said, found)
    assert complaint(refuse, {"k": 0, "said": "k: got 0, expected 1"}, TypeError, "k")
    assert verdict(lambda: str(torch.ones(2).view(3)))[0] == "wrong"


def test_a_line_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "battery.json"
    line = Line("part", "promise", "control", trials=9, planted=1, caught=1)
    for trials in (9, 10):
        lines = [replace(line, trials=trials), replace(line, promise="another")]
        keep([one.as_dict() for one in lines[: trials - 7]], 0.5, {"commit": "c"}, file)
    kept = json.loads(file.read_text())
    assert [(one["promise"], one["trials"]) for one in kept] == [("promise", 10), ("another", 9)]
    assert kept[0]["share"] == 0.5 and kept[0]["commit"] == "c"
