"""Keywords of scikit-learn get a sentence that says what they are called here."""

import inspect
from typing import Any

import numpy as np
import pytest

import factormer

V = np.ones((4, 3))
ours: Any = factormer  # called as no type allows


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ours.factorize(V, n_components=2), "factorize has no .*: say rank, or use"),
        (lambda: ours.factorize(V, 2, beta_loss=1), "keyword 'beta_loss', .*: say loss, or"),
        (lambda: ours.factorize(X=V, n_components=2), "say V, or use"),
        (lambda: ours.explain(V, 2, alpha_W=0.1), "explain has .*: say regularize_W, with L1"),
        (lambda: ours.consensus(V, n_components=2), "consensus has no keyword 'n_components'"),
        (lambda: ours.factorize_many(V, n_components=2), "factorize_many has .*: say rank"),
        (lambda: ours.factorize_many(V, 2, nonsense=2), "'nonsense'; it takes those of fact"),
    ],
)
def test_scikit_learns_keywords_are_translated(call, sentence):
    with pytest.raises(TypeError, match=sentence):
        call()


def test_other_wrong_keywords_and_the_signature_stay_pythons():
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        ours.factorize(V, 2, nonsense=1)
    assert list(inspect.signature(factormer.factorize).parameters)[:2] == ["V", "rank"]
