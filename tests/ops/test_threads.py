import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from graphtheory.ops.threads import Helpers


def test_helpers_work_until_all_is_done_and_keep_nothing() -> None:
    class Job:
        def __call__(self) -> None:
            seen.append(threading.get_ident())
            done.release()

    helpers, done, seen = Helpers(), threading.Semaphore(0), list[int]()
    job = Job()
    for _ in range(3):
        helpers.ask(job, 2)
    assert all(done.acquire(timeout=10) for _ in range(6))
    assert 1 <= len(set(seen)) <= 2 and threading.get_ident() not in seen
    gone = weakref.ref(job)
    del job
    for _ in range(100):
        if gone() is None:
            break
        time.sleep(0.01)
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_helpers_of_its_own() -> None:
    helpers = Helpers()
    done = threading.Semaphore(0)
    helpers.ask(done.release, 1)
    assert done.acquire(timeout=10)
    child = os.fork()
    if child == 0:
        helpers.ask(done.release, 1)
        os._exit(0 if done.acquire(timeout=10) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_process_ends_after_its_helpers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import time\n"
        "from graphtheory.ops.threads import helpers\n"
        "def job():\n"
        "    time.sleep(0.3)\n"
        "    print('ended', flush=True)\n"
        "helpers.ask(job, 2)\n"
    )
    found = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (found.returncode, found.stdout.count("ended")) == (0, 2), found.stderr
