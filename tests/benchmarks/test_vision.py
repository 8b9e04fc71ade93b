"""The benchmark of vision transformers: every network is measured, after DeiT-S was compared."""

from types import ModuleType

import pytest
import torch

pytest.importorskip("transformers")


def test_a_quick_run_measures_every_network(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    module.main(threads=torch.get_num_threads(), quick=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * (8 + 7)  # forward and training: eight networks, seven beside DeiT-S
    for what in ("forward", "training step"):
        assert any(line.startswith(f"{what}, DeiT-S, TopK(0.5) over DeiT-S") for line in lines)
    assert all("gmacs" in line for line in lines)


def test_what_is_beside_deit_computes_less(module: ModuleType) -> None:
    image = torch.zeros(1, 3, 32, 32)
    macs = {
        name: module.count_macs(model, image).total
        for name, model in module.networks(module.SMALL).items()
    }
    ours, theirs, *fewer, nearest = macs.values()
    assert ours == theirs == nearest and max(fewer) < 0.8 * ours


def test_networks_that_differ_are_not_timed(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
        return model(images) + float(isinstance(model, module.Logits))

    monkeypatch.setattr(module, "forward", other)
    with pytest.raises(AssertionError, match="not close"):
        module.rows_of(module.SMALL, 1, 1, 1)
