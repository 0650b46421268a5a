"""A bar where it is asked for, callbacks, and scikit-learn's own."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from factormer import NMF

callback_module: Any = pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
X = np.random.default_rng(0).random((20, 9))


class Listener:
    """Hears what scikit-learn's callbacks hear; may ask to stop."""

    def __init__(self, stop_after: int = 1000):
        self.heard: list[str] = []
        self.errors: list[float] = []
        self.stop_after = stop_after

    def setup(self, estimator: Any, context: Any) -> None:
        self.heard.append("setup")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.heard.append(f"begin {context.task_name}")

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, X: Any = None, fitted_estimator: Any = None
    ) -> bool:
        self.heard.append(f"end {context.task_name}")
        self.errors.append(float(np.linalg.norm(X - fitted_estimator.inverse_transform(
            fitted_estimator.transform(X)))))  # fmt: skip
        return self.heard.count("end iteration") >= self.stop_after

    def teardown(self, estimator: Any, context: Any) -> None:
        self.heard.append("teardown")


def test_callbacks_of_scikit_learn_hear_each_iteration():
    listener = Listener()
    NMF(3, max_iter=4, tol=0.0, random_state=0).set_callbacks(listener).fit(X)
    iterations = ["begin iteration", "end iteration"] * 4
    assert listener.heard == ["setup", "begin fit", *iterations, "end fit", "teardown"]
    assert listener.errors[-1] <= listener.errors[0] * (1 + 1e-12)  # both are rounded


def test_callbacks_of_scikit_learn_may_stop_the_fit():
    listener = Listener(stop_after=3)
    model = NMF(3, max_iter=50, tol=1e-12, random_state=0).set_callbacks(listener)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(X)
    assert listener.heard.count("end iteration") == 3
    assert model.n_iter_ == 5  # those made at once are kept
    assert listener.heard[-1] == "teardown"


def test_progress_bar_of_scikit_learn_works_in_a_pipeline():
    pipeline: Any = make_pipeline(NMF(3, max_iter=5, tol=0.0))
    bar = callback_module.ProgressBar(max_propagation_depth=None)
    assert pipeline.set_callbacks(bar).fit_transform(X).shape == (20, 3)


def test_callback_hears_each_iteration():
    rows: list[Any] = []
    NMF(3, max_iter=6, tol=0.0, callback=rows.append).fit(X)
    assert [row.iteration for row in rows] == list(range(7))


def test_scripts_are_silent_unless_asked():
    code = "import numpy as np; from factormer import NMF; X = np.arange(60.0).reshape(10, 6)\n"
    code += "for verbose in (0, 1): NMF(3, max_iter=4, tol=0, verbose=verbose).fit(X); print('end')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stderr
    silent, shown, _ = done.stdout.split("end\n")
    assert not silent
    assert "RMSE" in shown
