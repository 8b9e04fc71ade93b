"""What layers are called with, in every form, and every way to change it behind their back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor

from graphtheory import Neighborhood
from graphtheory.nn import SparseFeatures

NODES, EDGES, KINDS = 12, 36, 3  # kinds of edges
FEW = (100, 1000)  # features with few non-zeros, large enough to be read by them
_DEGREE = EDGES // NODES
_ROWS = torch.arange(NODES).repeat_interleave(_DEGREE)

Content = list[Tensor]
Draw = Callable[[np.random.Generator], Content]


class Form(NamedTuple):
    """How an argument is made of tensors.

    Attributes:
        draw: New tensors, always of the same shapes.
        build: The argument and, in the order of `draw`, the tensors that it reads.
        written: Which of them may change.
        own: Whether they are the tensors themselves, not parts of a matrix.
    """

    draw: Draw
    build: Callable[[Content], tuple[Any, Content]]
    written: tuple[int, ...] = (0,)
    own: bool = True


class Argument:
    """What a layer is called with, and the tensors behind it."""

    def __init__(self, form: str, rng: np.random.Generator, inference: bool = False) -> None:
        self.form, self._inference, self.same_address = FORMS[form], inference, False
        self.put(self.form.draw(rng))

    def put(self, tensors: Content) -> None:
        """Make the argument anew from these tensors."""
        with torch.inference_mode(self._inference):
            made = [t.clone() for t in tensors]
            self.value, self.parts = self.form.build(made)

    def copy(self) -> Any:
        """The same, of tensors that nobody has seen."""
        return self.form.build([t.detach().clone() for t in self.parts])[0]

    @property
    def only_in_inference(self) -> bool:
        """Whether torch refuses it in training: floats that were made in inference mode."""
        return self._inference and any(t.is_floating_point() for t in self.parts)

    def change(self, way: str, rng: np.random.Generator) -> None:
        """Let it hold something else."""
        new = self.form.draw(rng)
        if way == "freed":
            before = [t.data_ptr() for t in self.parts]
            self.value, self.parts = None, []
            gc.collect()
            self.put(new)
            self.same_address = before == [t.data_ptr() for t in self.parts]
            return
        for at in self.form.written:
            with torch.inference_mode(self._inference or way == "in inference mode"):
                WAYS[way](self.parts[at], new[at].clone())


def _from_elsewhere(tensor: Tensor, new: Tensor) -> None:
    """By another tensor on the same storage, with a count of changes of its own."""
    other = torch.empty(0, dtype=tensor.dtype)
    other.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    other.copy_(new)


WAYS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "in place": lambda t, new: t.copy_(new),
    "by a view": lambda t, new: t.view(-1).copy_(new.reshape(-1)),
    "in inference mode": lambda t, new: t.copy_(new),
    "set_": lambda t, new: t.set_(new),
    "numpy": lambda t, new: np.copyto(t.numpy(), new.numpy()),
    "data": lambda t, new: t.data.copy_(new),
    "data replaced": lambda t, new: setattr(t, "data", new),
    "shared storage": _from_elsewhere,
    "freed": lambda t, new: None,  # see `Argument.change`
}
# Those of which torch's count of changes knows nothing.
UNCOUNTED = ("numpy", "data", "shared storage")
_OF_OWN = ("set_", "data replaced")  # of a part of a matrix they change the part alone


def ways_of(form: str) -> tuple[str, ...]:
    """How arguments of a form may change."""
    return tuple(way for way in WAYS if FORMS[form].own or way not in _OF_OWN)


def _ids(most: int, *shape: int) -> Draw:
    return lambda rng: [torch.from_numpy(rng.integers(0, most, shape))]


def normal(*shape: int) -> Draw:
    """Of one tensor of standard normal numbers."""
    return lambda rng: [torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))]


def _weights(rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(rng.random(EDGES, dtype=np.float32)) + 0.5


def _few(rng: np.random.Generator) -> Content:
    return [torch.from_numpy((rng.random(FEW, dtype=np.float32) < 0.01).astype(np.float32))]


def _pairs(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Target, ascending, and source of different edges."""
    found = np.sort(rng.choice(NODES**2, EDGES, replace=False))
    return torch.from_numpy(found // NODES), torch.from_numpy(found % NODES)


def _pointers(rows: Tensor) -> Tensor:
    return torch.cat([rows.new_zeros(1), torch.bincount(rows, minlength=NODES).cumsum(0)])


def _compressed(rng: np.random.Generator) -> Content:
    rows, columns = _pairs(rng)
    return [_pointers(rows), columns, _weights(rng)]


def _coo(tensors: Content) -> tuple[Any, Content]:
    made = torch.sparse_coo_tensor(*tensors, (NODES, NODES), is_coalesced=True)
    return made, [made._indices(), made._values()]


def _csr(tensors: Content) -> tuple[Any, Content]:
    made = torch.sparse_csr_tensor(*tensors, (NODES, NODES))
    return made, [made.crow_indices(), made.col_indices(), made.values()]


def _csc(tensors: Content) -> tuple[Any, Content]:
    made = torch.sparse_csc_tensor(*tensors, (NODES, NODES))
    return made, [made.ccol_indices(), made.row_indices(), made.values()]


def _sparse_tensor(tensors: Content) -> tuple[Any, Content]:
    row, col, value = tensors
    made = SparseTensor(row=row, col=col, value=value, sparse_sizes=(NODES, NODES), is_sorted=True)
    return made, [made.storage.row(), made.storage.col(), made.storage.value()]


def _edge_index(tensors: Content) -> tuple[Any, Content]:
    made = EdgeIndex(tensors[0], sparse_size=(NODES, NODES))
    return made, [made.as_tensor()]


def _neighborhood(name: str) -> Callable[[Content], tuple[Any, Content]]:
    def build(tensors: Content) -> tuple[Any, Content]:
        made = Neighborhood(*tensors[:2], **{name: tensors[2]})
        return made, [made.indptr, made.indices, getattr(made, name)]

    return build


def _with(last: Draw) -> Draw:
    """Always the same edges, and what they carry."""
    return lambda rng: [_pointers(_ROWS), torch.arange(EDGES) * 5 % NODES, *last(rng)]


def _documents(rng: np.random.Generator) -> Content:
    between = rng.integers(0, 3, NODES - 2)  # never all of one document, which needs no mask
    return [torch.from_numpy(np.sort(np.concatenate([[0, 2], between])))]


def _block_mask(tensors: Content) -> tuple[Any, Content]:
    (of,) = tensors

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return of[i] == of[j]

    return create_block_mask(allowed, None, None, NODES, NODES, device="cpu"), tensors


def _offsets(rng: np.random.Generator) -> Content:
    return [torch.from_numpy(np.sort([0, NODES, *rng.integers(0, NODES + 1, 3)]))]


def _same(tensors: Content) -> tuple[Any, Content]:
    return tensors[0], tensors


def _rows_fixed(rng: np.random.Generator) -> Content:
    columns = np.concatenate([np.sort(rng.permutation(NODES)[:_DEGREE]) for _ in range(NODES)])
    return [_ROWS, torch.from_numpy(columns), _weights(rng)]


FORMS: dict[str, Form] = {
    "list": Form(_ids(NODES, 2, EDGES), _same),
    "EdgeIndex": Form(_ids(NODES, 2, EDGES), _edge_index),
    "coo": Form(lambda rng: [torch.stack(_pairs(rng)), _weights(rng)], _coo, (0, 1), own=False),
    "csr": Form(_compressed, _csr, (0, 1, 2), own=False),
    "csc": Form(_compressed, _csc, (0, 1, 2), own=False),
    "SparseTensor": Form(_rows_fixed, _sparse_tensor, (1, 2)),
    "list of the first": Form(_ids(NODES // 2, 2, EDGES), _same),
    "wide list": Form(_ids(FEW[0], 2, 3 * FEW[0]), _same),
    "edge weights": Form(lambda rng: [_weights(rng)], _same),
    "edge features": Form(normal(EDGES, 3), _same),
    "edge types": Form(_ids(KINDS, EDGES), _same),
    "hops": Form(lambda rng: [t.to(torch.uint8) for t in _ids(6, EDGES)(rng)], _same),
    "hops of pairs": Form(_ids(6, NODES**2), _same),
    "batch": Form(_documents, _same),
    "few": Form(_few, _same),
    "SparseFeatures": Form(_few, lambda tensors: (SparseFeatures(tensors[0]), tensors)),
    "offsets": Form(_offsets, _same),
    "mask": Form(_documents, _block_mask),
    "with weights": Form(
        _with(lambda rng: [_weights(rng)]), _neighborhood("weight"), (2,)
    ),
    "with hops": Form(
        _with(lambda rng: [t.to(torch.uint8) for t in _ids(6, EDGES)(rng)]),
        _neighborhood("distance"), (2,),
    ),
}  # fmt: skip
