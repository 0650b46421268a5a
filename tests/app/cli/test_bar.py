"""The error that the bar shows is the RMSE, or the mean loss of an entry."""

import numpy as np
import pytest

from factormer.app.cli.bar import of_entry


@pytest.mark.parametrize("squares", [True, False])
def test_an_error_is_that_of_the_loss(squares):
    mean = 0.37  # of the loss of an entry: ½(v − y)², or another
    assert of_entry(np.sqrt(2 * mean), squares) == pytest.approx(
        np.sqrt(2 * mean) if squares else mean
    )
