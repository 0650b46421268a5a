"""What is equal is described alike, and what differs otherwise; all of it is JSON."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from factormer.data.digest import checksum, described
from factormer.data.intake import as_matrix
from factormer.data.observations import observe
from factormer.losses import Beta
from factormer.penalties import L1, Fixed


@dataclass
class Own:
    weight: float


class Other:
    def __init__(self, weight):
        self.weight = weight


A = np.arange(6.0).reshape(2, 3) + 1
HOLES = np.where(A > 5, np.nan, A)

PAIRS = {
    "number": lambda x: 1.0 + x,
    "numpy's number": lambda x: np.float32(1 + x),
    "array": lambda x: A + x,
    "tensor": lambda x: torch.from_numpy(A) + x,
    "sparse": lambda x: scipy.sparse.csr_array(A + x),
    "sparse tensor": lambda x: (torch.from_numpy(A) + x).to_sparse(),
    "dense matrix": lambda x: as_matrix(A + x),
    "sparse matrix": lambda x: as_matrix(scipy.sparse.csr_array(A + x)),
    "holes": lambda x: observe(HOLES + x),
    "penalty": lambda x: [L1(1.0 + x)],
    "known columns": lambda x: Fixed(A + x, [True] * 3),
    "own dataclass": lambda x: Own(1.0 + x),
    "own object": lambda x: Other(A + x),
    "mapping": lambda x: {"a": x, "b": None},
    "path": lambda x: Path(f"file-{x}"),
    "range": lambda x: range(2 + x),
}


@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS.keys())
def test_equal_values_are_described_alike_and_others_not(make):
    first, again, other = (described(make(x)) for x in (0, 0, 1))
    assert json.loads(json.dumps(first)) == again
    assert first != other
    assert checksum(first) == checksum(again) != checksum(other)


def test_shape_and_type_count():
    found = [A, A.astype(np.float32), A.ravel(), torch.from_numpy(A.T)]
    assert len({checksum(described(values)) for values in found}) == 4
    assert described(np.asfortranarray(A)) == described(A)


def test_classes_and_functions_go_by_name():
    assert described(Beta) == "Beta"
    assert described(checksum) == "checksum"
    assert described(L1(0.5)) == {"type": "L1", "weight": 0.5}
