"""Triton decides when it is imported whether it interprets, so that its kernels' tests on the CPU
have a process of their own, which `test_triton_csr.py` starts."""

import os

collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted_triton.py"]
