"""What the benchmark of busy machines puts around a step."""

from types import ModuleType

import torch


def test_a_step_runs_on_its_threads_and_awake_where_it_may_not_sleep(module: ModuleType) -> None:
    look, threads, seen = module.Rest.look, torch.get_num_threads(), []

    def step() -> None:
        seen.append((torch.get_num_threads(), module.Rest.look is look))

    try:
        module.on(1, True, step)()
        module.on(2, False, step)()
    finally:
        torch.set_num_threads(threads)
    assert seen == [(1, True), (2, False)] and module.Rest.look is look


def test_busy_processes_end_with_the_rounds(module: ModuleType) -> None:
    with module.busy(2) as started:
        assert [process.poll() for process in started] == [None, None]
    assert None not in [process.poll() for process in started]
