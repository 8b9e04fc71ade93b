"""Tests of interpreted kernels have a process of their own, which `test_kernels.py` starts."""

import os

INTERPRETED = ["interpreted.py", "interpreted_topk.py"]
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else INTERPRETED
