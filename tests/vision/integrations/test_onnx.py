"""Patched models as ONNX, run by ONNX Runtime."""

import io
from types import ModuleType
from typing import Any

import pytest
import torch

from graphtheory.patterns import TopK
from graphtheory.vision.nn import Fuse, Keep, Merge

hf = pytest.importorskip("transformers")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from graphtheory.vision.integrations.hf_apply import apply  # noqa: E402
from graphtheory.vision.integrations.token_hooks import Reduce, Semantic  # noqa: E402

if not hasattr(hf.ViTModel(hf.ViTConfig(num_hidden_layers=1)), "layers"):
    pytest.skip("an older transformers builds its layers otherwise", allow_module_level=True)

RULES = [  # and whether patches are alike, so that only the order of equal ones decides
    (Reduce(Merge(3), restore=True), False), ({1: Fuse(0.7), 2: Merge(2), 3: Keep(4)}, False),
    (Keep(0.6), False), (Semantic(4, base=0), False), (TopK(0.5), False), (Merge(3), True),
    (TopK(3), True),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize(("rule", "tied"), RULES, ids=str)
def test_every_rule_runs_in_onnx_runtime(rule: Any, tied: bool, zoo: ModuleType) -> None:
    torch.manual_seed(0)
    model = zoo.tiny("ViT")
    if tied:
        with torch.no_grad():
            model.vit.embeddings.position_embeddings.zero_()
    apply(model, rule)
    images = torch.ones(2, 3, 32, 32) if tied else zoo.images()
    program = torch.onnx.export(zoo.Read(model), (images,), dynamo=True, verbose=False)
    assert program is not None
    file = io.BytesIO()
    program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue())
    given = images if tied else images.flip(0) ** 2
    (found,) = session.run(None, {session.get_inputs()[0].name: given.numpy()})
    with torch.no_grad():
        wanted = zoo.Read(model)(given)
        torch.testing.assert_close(torch.from_numpy(found), wanted, atol=1e-5, rtol=1e-5)
