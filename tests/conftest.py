"""Shape checks for the whole suite, and the fixtures every test may use."""

import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from tests import compiled

CHECKS_SHAPES = find_spec("beartype") is not None
if CHECKS_SHAPES:
    from tests import shapes

    shapes.install()  # before anything imports factormer

settings.register_profile("factormer", deadline=None, derandomize=True)
settings.load_profile("factormer")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-golden", action="store_true", help="rewrite tests/golden/*.json")


def pytest_report_header() -> str | None:
    return None if CHECKS_SHAPES else "shapes of arrays are not checked: beartype is missing"


def pytest_sessionstart(session: pytest.Session) -> None:
    if not session.config.option.file_or_dir:  # all tests
        compiled.share()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture
def rng() -> torch.Generator:
    """A generator seeded alike for every test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads for torch, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Assert that named arrays equal those stored in tests/golden; `make golden` stores them."""

    def check(name: str, *, rtol: float = 1e-8, **arrays: torch.Tensor) -> None:
        path = GOLDEN / f"{name}.json"
        if request.config.getoption("--rewrite-golden"):
            GOLDEN.mkdir(exist_ok=True)
            stored = {key: array.tolist() for key, array in arrays.items()}
            path.write_text(json.dumps(stored, indent=1) + "\n")
        stored = json.loads(path.read_text())
        assert stored.keys() == arrays.keys()
        for key, array in arrays.items():
            np.testing.assert_allclose(
                array.numpy(), stored[key], rtol=rtol, atol=rtol, err_msg=key
            )

    return check
