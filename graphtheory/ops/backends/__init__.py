"""The backends in the order of choice: the first that can run a call, and is not slower, does."""

from graphtheory.ops.backend import register
from graphtheory.ops.backends.blocks import Blocks
from graphtheory.ops.backends.numba_csr import NumbaCSR
from graphtheory.ops.backends.reference import Reference
from graphtheory.ops.backends.torch_csr import TorchCSR
from graphtheory.ops.backends.triton_csr import TritonCSR

register(Blocks())
register(NumbaCSR())
register(TritonCSR())
register(TorchCSR())
register(Reference())
