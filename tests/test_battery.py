"""The battery at a hundredth of its size, and that it can fail."""

from dataclasses import replace

import pytest

from battery.answers import OPERATIONS, half_precision, locality, planted_faults, right_answers
from battery.bits import threads
from battery.damage import FORMATS, _of_format, damage
from battery.hostile import hostile
from battery.line import Line


@pytest.mark.parametrize(
    ("part", "share"),
    [
        (right_answers, 0.004), (planted_faults, 0.03), (half_precision, 0.02), (locality, 0.03),
        (damage, 0.04), (hostile, 1.0), (threads, 0.004),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_every_promise_holds_and_its_control_is_seen(part, share: float) -> None:
    lines = part(share, 1)
    assert lines and all(line.trials for line in lines)
    assert all(line.holds for line in lines), "\n".join(map(str, lines))


def test_a_line_without_a_control_or_without_trials_does_not_hold() -> None:
    good = Line("part", "promise", "control", trials=9, planted=1, caught=1)
    assert good.holds and "holds" in str(good) and "33 %" in str(good)
    for change in ({"planted": 0, "caught": 0}, {"caught": 0}, {"trials": 0}, {"broken": ["x"]}):
        assert not replace(good, **change).holds
    assert "BROKEN" in str(replace(good, broken=["case 3"])) and good.as_dict()["holds"]


def test_a_reader_that_checks_nothing_breaks_the_promise() -> None:
    for form in FORMATS:
        assert _of_format(replace(form, read=form.unsafe), 60, 1).broken, form.name


def test_an_operation_that_is_wrong_breaks_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = OPERATIONS[0]
    wrong = replace(attention, call=lambda t, nb, b: 1.0001 * attention.call(t, nb, b))
    monkeypatch.setattr("battery.answers.OPERATIONS", (wrong,))
    assert all(line.broken for line in right_answers(0.004, 1))
