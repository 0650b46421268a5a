"""A trace scales with the matrix, and draws itself."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from factormer.run.trace import Row, Trace
from tests.run.scripted import Scripted


def test_scaled_trace_is_that_of_the_scaled_matrix():
    trace = Scripted([0.5, 0.9]).run().trace
    scaled = trace.scaled(torch.tensor(3.0, dtype=torch.float64))
    np.testing.assert_allclose(scaled.rmse, 3 * trace.rmse)
    assert scaled.iteration.tolist() == trace.iteration.tolist()
    assert scaled.seconds.tolist() == trace.seconds.tolist()


def test_each_member_of_a_stack_is_scaled_by_its_own_number():
    trace = Scripted([[0.5, 0.5], [0.9, 0.6]]).run().trace
    scaled = trace.scaled(torch.tensor([3.0, 5.0], dtype=torch.float64))
    np.testing.assert_allclose(scaled.rmse, trace.rmse * [3.0, 5.0])


@pytest.mark.parametrize("x", ["iteration", "seconds"])
def test_trace_draws_its_error_on_given_axes(x):
    trace, ax = Scripted([0.5, 0.9, 0.2]).run().trace, Figure().subplots()
    assert trace.plot(ax, x=x, label="script") is ax
    (line,) = ax.lines
    np.testing.assert_allclose(np.asarray(line.get_ydata()), trace.rmse)
    np.testing.assert_allclose(np.asarray(line.get_xdata()), getattr(trace, x))
    assert (ax.get_xlabel(), ax.get_ylabel(), line.get_label()) == (x, "RMSE", "script")
    assert ax.get_yscale() == "log"


def test_trace_of_a_stack_draws_a_line_a_member():
    trace = Scripted([[0.5, 0.5], [0.9, 0.6]]).run().trace
    assert len(trace.plot(Figure().subplots()).lines) == 2


def test_trace_draws_on_the_current_axes_by_default():
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    try:
        ax = Trace([Row(0, 0.0, torch.tensor(1.0))]).plot()
        assert ax is plt.gca()
    finally:
        plt.close("all")


def test_unknown_column_to_draw_against_is_refused():
    with pytest.raises(ValueError, match="x is 'time'; choose 'iteration', 'seconds' or 'passes'"):
        Trace().plot(x="time")
