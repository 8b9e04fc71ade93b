import io
from collections.abc import Callable

import pytest
from rich.console import Console
from torch_geometric.data import Data

from graphtheory.lab.train import FullGraph, NodeTask, fit
from graphtheory.lab.train import progress as module

NewTask = Callable[..., NodeTask]


def test_a_log_gets_a_line_now_and_then(
    data: Data, new_task: NewTask, capfd: pytest.CaptureFixture[str]
) -> None:
    result = fit(new_task(), FullGraph(data), epochs=40, patience=40, progress=True)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 10
    assert lines[0].startswith("epoch 4/40  loss ") and lines[-1].startswith("epoch 40/40  loss ")
    assert lines[-1].endswith(f"best {result.val:.4f}")


def test_an_early_end_is_told(
    data: Data, new_task: NewTask, capfd: pytest.CaptureFixture[str]
) -> None:
    result = fit(new_task(lr=0.5), FullGraph(data), epochs=1000, patience=1, progress=True)
    assert f"epoch {result.epochs}/1000" in capfd.readouterr().err


def test_a_terminal_gets_one_moving_line(
    data: Data, new_task: NewTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(module, "Console", lambda stderr: console)
    fit(new_task(), FullGraph(data), epochs=5, progress=True)
    shown = screen.getvalue()
    assert "5/5" in shown and "best 0." in shown
    assert shown.count("\n") == 1  # the rest moves the cursor back


def test_a_terminal_is_left_in_order_after_an_error(
    data: Data, new_task: NewTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(module, "Console", lambda stderr: console)
    with pytest.raises(FloatingPointError):
        fit(new_task(lr=1e37), FullGraph(data), epochs=20)
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")


def test_a_listener_gets_every_epoch_and_no_test_score(data: Data, new_task: NewTask) -> None:
    heard: list[dict[str, float]] = []
    result = fit(new_task(), FullGraph(data), epochs=3, progress=heard.append)
    without = [{k: v for k, v in row.items() if k != "test"} for row in result.history]
    assert heard == without and "test" in result.history[0]


def test_silence_is_silent(
    data: Data, new_task: NewTask, capfd: pytest.CaptureFixture[str]
) -> None:
    fit(new_task(), FullGraph(data), epochs=3, progress=False)
    assert capfd.readouterr() == ("", "")


def test_every_fit_of_a_block_tells_its_epochs(data: Data, new_task: NewTask) -> None:
    heard: list[tuple[int, int]] = []
    with module.report_epochs(lambda *at: heard.append(at)):
        for progress in (False, lambda row: None):
            fit(new_task(), FullGraph(data), epochs=2, progress=progress)
    fit(new_task(), FullGraph(data), epochs=2, progress=False)
    assert heard == [(1, 2), (2, 2)] * 2


def test_a_line_says_how_long_the_rest_takes(
    data: Data,
    new_task: NewTask,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(0, 1000, 10))  # ten seconds an epoch
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    fit(new_task(), FullGraph(data), epochs=4, progress=True)
    lines = capfd.readouterr().err.splitlines()
    assert [line.endswith("s left") for line in lines] == [True, True, True, False]
    assert lines[1].endswith("at most 20 s left")
