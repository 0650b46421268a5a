"""One way for everybody: requests are read once, plans explain themselves, answers agree."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import factormer
from factormer import NMF, factorize
from factormer.accelerate.cuda_graph import Captured
from factormer.app.runs import FitOptions, RunFolder, fit
from factormer.data.intake import as_matrix
from factormer.penalties import L1, Simplex
from factormer.run.choose import choose
from factormer.run.networks import accelerated, accelerator
from factormer.run.registry import SOLVERS, STARTS, TRAITS, her_admm
from factormer.run.request import Request
from factormer.run.result import Status
from tests.app.runs import cases

DATA = {
    "small": np.random.default_rng(0).random((20, 15)),
    "sketched": np.random.default_rng(1).random((400, 300)),
    "sparse": scipy.sparse.random_array((60, 40), density=0.2, rng=np.random.default_rng(2)),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "asked", [{}, {"loss": "kullback-leibler"}, {"loss": 1.5}, {"tol": 0.0, "max_iter": 7}]
)
def test_estimator_and_function_give_the_same_to_the_last_bit(name, dtype, asked):
    V = DATA[name].astype(dtype)
    words = {("beta_loss" if key == "loss" else key): value for key, value in asked.items()}
    options: dict[str, Any] = {"max_iter": 30} | words
    model = NMF(8, random_state=0, **options)
    W = model.fit_transform(V)
    result = factorize(V, 8, **({"max_iter": 30} | asked))
    np.testing.assert_array_equal(W, result.W)
    np.testing.assert_array_equal(model.components_.T, result.H)
    assert model.result_.plan == result.plan


@pytest.mark.parametrize(
    "options", [{}, {"loss": "kullback-leibler"}, {"regularize_h": ("l1:0.1",)}]
)
def test_the_command_line_gives_the_same_to_the_last_bit(options, tmp_path):
    data = cases.images()
    fit(data, [3], FitOptions(**options), tmp_path)
    found = RunFolder(tmp_path).arrays("rank-3", "factors.npz")
    asked = {"loss": options.get("loss", "frobenius")}
    if "regularize_h" in options:
        asked["regularize_H"] = L1(0.1)
    result = factorize(data.V, 3, **asked)
    np.testing.assert_array_equal(found["W"], result.W)
    np.testing.assert_array_equal(found["H"], result.H)


def test_settling_never_leaves_a_worse_point():
    V = DATA["small"]
    plain = factorize(V, 4, max_iter=5, tol=1e-12, order=None, scale=None)
    rough = factorize(V, 4, max_iter=5, tol=0.0, order=None, scale=None)
    assert plain.rmse <= rough.rmse


def test_a_plan_is_made_without_reading_an_entry():
    class Blind(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if getattr(function, "__name__", "") in ("sum", "matmul", "mul", "aminmax", "to"):
                raise AssertionError(f"{function} reads V")
            return super().__torch_function__(function, types, args, kwargs or {})

    V: Any = as_matrix(np.random.default_rng(0).random((700, 500)))
    request = Request.of(V, 5)
    object.__setattr__(V, "stored", V.stored.as_subclass(Blind))
    plan = choose(request)
    assert [stage.view.name for stage in plan.stages][-1] == "ITSELF"


@pytest.mark.parametrize(
    ("V", "asked", "words"),
    [
        (DATA["small"], {}, ["20×15, dense, float64", "random: V is small", "her on V"]),
        (
            DATA["sketched"],
            {},
            ["rotated: an SVD of a sketch", "stage 2", "components by share, balanced"],
        ),
        (DATA["sparse"], {}, ["60×40, sparse", "random: V is small"]),
        (DATA["small"], {"solver": "mu"}, ["mu on V: multiplicative updates (asked for)"]),
        (DATA["small"], {"tol": 0.0}, ["W as the last iteration leaves it"]),
        (DATA["small"], {"loss": 1.0}, ["β = 1", "newton on V"]),
        (DATA["small"], {"regularize_W": Simplex()}, ["with Simplex", "ao-admm on V"]),
        (DATA["small"], {"n_init": 3}, ["3 runs, of which the best is kept", "side by side"]),
        (DATA["small"], {"time_limit": 2.5}, ["or 2.5 s"]),
    ],
)
def test_a_plan_explains_itself(V, asked, words):
    text = str(factormer.explain(V, 8, **asked))
    for word in words:
        assert word in text
    if "time_limit" not in asked:
        assert str(factorize(V, 8, **asked).plan) == text


def test_every_need_is_a_trait_and_every_solver_says_what_it_is():
    for kind in SOLVERS:
        assert set(kind.needs) <= set(TRAITS)
        assert kind.says
    assert {"random", "nndsvd", "rotated", "merged"} <= set(STARTS)


@pytest.mark.parametrize("n_init", [0, -1, True])
def test_runs_are_counted(n_init):
    with pytest.raises(ValueError, match=r"n_init is .*; it must be a whole number of at least 1"):
        NMF(2, n_init=n_init).fit(DATA["small"])


def test_the_best_of_several_runs_is_kept():
    V = DATA["small"]
    one, several = (factorize(V, 5, init="random", n_init=n).rmse for n in (1, 6))
    assert several <= one


@pytest.mark.parametrize("kind", ["small", "sketched", "sparse"])
def test_runs_side_by_side_keep_the_laws(kind):
    V, seen = DATA[kind], []
    options = {"n_init": 3, "max_iter": 30, "tol": 0.0, "random_state": 2}
    one, again = (factorize(V, 4, callback=seen.append, **options) for _ in range(2))
    assert one.n_iter == 30
    assert [row.iteration for row in seen].count(0) == 2 * 3  # each run is heard from its start
    assert {row.iteration for row in seen} == set(range(31))
    np.testing.assert_array_equal(one.W, again.W)
    assert one.rmse <= one.trace.rmse[-1] * (1 + 1e-9)
    dense = V.toarray() if kind == "sparse" else V
    assert one.rmse == pytest.approx(np.sqrt(np.mean((dense - one.W @ one.H.T) ** 2)))


def test_runs_side_by_side_end_in_time_though_the_best_has_converged():
    V = np.outer(np.arange(1.0, 41), np.arange(1.0, 31))  # exact after an iteration
    asked = {"n_init": 6, "max_iter": 5000, "tol": 1e-2}
    stopped = factorize(V, 2, watch=lambda _, trace: True, **asked)
    assert stopped.status is Status.INTERRUPTED
    assert stopped.n_iter < 40
    assert factorize(V, 2, time_limit=1e-6, **asked).status is Status.TIME_LIMIT
    assert factorize(V, 2, **asked).status is Status.CONVERGED


def test_more_runs_than_fit_side_by_side_follow_each_other():
    seen, V = [], DATA["small"] + 1
    asked = {"loss": "kullback-leibler", "n_init": 3, "max_iter": 5}
    factorize(V, 3, callback=seen.append, **asked)
    assert [row.iteration for row in seen].count(0) == 3


@pytest.mark.parametrize(
    ("asked", "is_of_the_core"),
    [
        ({"init": "random"}, True),
        ({"regularize_H": L1(0.1)}, True),
        ({"solver": "hals"}, False),
        ({"loss": 1.0}, True),
    ],
)
def test_runs_are_lanes_of_the_core_and_follow_each_other_elsewhere(asked, is_of_the_core):
    seen = []
    factorize(DATA["small"], 3, n_init=3, max_iter=2, callback=seen.append, **asked)
    assert [row.iteration for row in seen].count(0) == 3
    said = str(factormer.explain(DATA["small"], 3, n_init=3, **asked))
    assert ("(side by side; the better of them go on)" in said) == is_of_the_core
    assert ("side by side" in said) == is_of_the_core


WALK = """
import sys
import numpy as np, factormer
V, home = np.random.default_rng(0).random((1000, 500)), factormer.__path__[0]
calls = {
    "fit": lambda: factormer.NMF(10, max_iter=3).fit(V),
    "factorize": lambda: factormer.factorize(V, 10, max_iter=3),
}
call = calls[sys.argv[1]]
call()
files, done = [], False
def look(frame, event, argument):
    global done
    name = frame.f_code.co_filename
    if event == "call" and not done and name.startswith(home):
        if name not in files:
            files.append(name)
        done = frame.f_code.co_name in ("normal", "product", "__matmul__")
sys.setprofile(look)
call()
sys.setprofile(None)
print("\\n".join(files))
"""


@pytest.mark.parametrize("name", ["fit", "factorize"])
def test_the_walk_to_the_first_product_is_as_long_as_the_page_says(name):
    source = Path(factormer.__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WALK, name],
        env={"PYTHONPATH": str(source), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=True,
    )
    page = (source.parent / "docs" / "inside.md").read_text(encoding="utf-8")
    [said] = re.findall(rf"(\d+) files from `{name}`", page)
    files = run.stdout.split()
    assert len(files) == int(said), f"docs/inside.md says {said}; these are {len(files)}: {files}"


def test_a_network_keeps_iterations_recorded():
    assert (
        type(accelerated(her_admm(), accelerator("any-rank-admm", torch.device("cpu")))) is Captured
    )
