from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache for all tests, not the user's; a set is read from its raw files once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHTHEORY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
