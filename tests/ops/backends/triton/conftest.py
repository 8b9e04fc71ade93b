"""Interpreted kernels and a pretended GPU have a process of their own, which tests here start."""

import os

IN_A_PROCESS = {
    "TRITON_INTERPRET": ["interpreted.py", "interpreted_topk.py"],
    "INTERPRETED_GPU": ["interpreted_replays.py"],
    "PRETENDED_GPU": ["launched.py"],
}
collect_ignore = [
    file for name, files in IN_A_PROCESS.items() for file in files if os.environ.get(name) != "1"
]
