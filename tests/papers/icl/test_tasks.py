import pytest
import torch

from graphtheory.papers.icl.data import all_tasks, training_tasks, uncovered, unseen_tasks


def test_blocks_cover_every_pattern_and_label_evenly() -> None:
    for blocks in range(1, 6):
        tasks = training_tasks(6, blocks)
        assert len(tasks) == 6 * blocks and len(tasks.unique(dim=0)) == len(tasks)
        assert not uncovered(tasks, 6)
    assert training_tasks(6, 2)[6:8].tolist() == [[0, 2], [1, 3]]
    left = unseen_tasks(training_tasks(6, 4), 6)
    assert len(left) == 6 and not set(map(tuple, left.tolist())) & set(
        map(tuple, training_tasks(6, 4).tolist())
    )
    with pytest.raises(ValueError, match="all 6 are given"):
        unseen_tasks(all_tasks(3), 3)


def test_it_is_said_what_is_not_covered() -> None:
    more = torch.cat([training_tasks(3), torch.tensor([[0, 2]])])
    assert uncovered(more, 3) == ["4 tasks, expected a multiple of M1 = 3"]
    few = uncovered(torch.tensor([[0, 1], [1, 0]]), 3)
    assert few[1:] == ["no task maps mu_3 to +1", "no task maps mu_3 to -1"]
    twice = uncovered(torch.tensor([[0, 1], [1, 0], [0, 2]]), 3)
    assert twice == ["2 tasks map mu_1 to +1, expected 1", "no task maps mu_3 to +1"]


@pytest.mark.parametrize("tasks", [[[0, 0]], [[0, 3]], [[-1, 0]]])
def test_no_task_at_all(tasks: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="tasks:"):
        uncovered(torch.tensor(tasks), 3)
