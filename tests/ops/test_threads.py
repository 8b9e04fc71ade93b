import threading
from collections.abc import Iterator

import pytest

from graphtheory.ops.threads import _blas, one_blas_thread


def counts() -> set[int]:
    return {library["num_threads"] for library in _blas().info()}


@pytest.fixture(autouse=True)
def two() -> Iterator[None]:
    with _blas().limit(limits=2):
        yield


def test_blas_has_one_thread_within_and_its_own_after() -> None:
    assert counts() == {2}
    with one_blas_thread():
        assert counts() == {1}
        with one_blas_thread():
            assert counts() == {1}
        assert counts() == {1}
    assert counts() == {2}


def test_an_error_within_restores_it() -> None:
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert counts() == {2}


def test_threads_that_come_and_go_restore_it() -> None:
    def work() -> None:
        for _ in range(50):
            with one_blas_thread():
                counts()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts() == {2}


def test_another_thread_within_sees_it() -> None:
    seen: list[set[int]] = []

    def work() -> None:
        with one_blas_thread():
            seen.append(counts())

    with one_blas_thread():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [{1}]
