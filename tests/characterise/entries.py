"""The ways into the package: each makes one call with one seed, and returns its answers."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import factormer
from tests.characterise.cases import Case
from tests.characterise.data import Data
from tests.characterise.judge import Answer

Entry = Callable[[Case, Data, int], list[Answer]]
_APART = 1000  # seeds of sweeps lie this far apart, so that no two of them share one


def answered(case: Case, data: Data, seed: int) -> list[Answer]:
    """Make the call of a case with that seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about iterations: statuses are judged instead
        return ENTRIES[case.entry](case, data, seed)


def _options(case: Case, data: Data, seed: int) -> dict[str, Any]:
    penalties = {"regularize_W": list(case.on_w) or None, "regularize_H": list(case.on_h) or None}
    return {
        "loss": case.loss,
        "random_state": seed,
        **penalties,
        **(data.extra or {}),
        **case.options,
    }


def _of(case: Case, result: Any, **where: Any) -> Answer:
    """Return the answer in a `Result`; with tol=0 the number of iterations is promised, too."""
    exact = case.options.get("tol") == 0
    return Answer(
        result.W, result.H, result.status.name, result.n_iter,
        rmse=float(result.rmse), loss=float(result.loss),
        facts={"iterations": result.n_iter} if exact else {}, **where,
    )  # fmt: skip


def _factorize(case: Case, data: Data, seed: int) -> list[Answer]:
    result: Any = factormer.factorize(data.given, case.rank, **_options(case, data, seed))
    if np.ndim(result.rmse) == 0:
        return [_of(case, result)]
    status, n_iter = result.status.name, result.n_iter  # of the stack as a whole
    return [
        Answer(W, H, status, n_iter, rmse=float(rmse), loss=float(loss), of=k)
        for k, (W, H, rmse, loss) in enumerate(
            zip(result.W, result.H, result.rmse, result.loss, strict=True)
        )
    ]


def _time_limit(case: Case, data: Data, seed: int) -> list[Answer]:
    options = {"tol": 0, "max_iter": 10**6, "time_limit": 0.3}
    return [_of(case, factormer.factorize(data.given, case.rank, random_state=seed, **options))]


def _interrupted(case: Case, data: Data, seed: int) -> list[Answer]:
    def end(row: Any) -> None:
        if row.iteration >= 5:
            raise KeyboardInterrupt

    return [_of(case, factormer.factorize(data.given, case.rank, random_state=seed, callback=end))]


def _custom(case: Case, data: Data, seed: int) -> list[Answer]:
    draw = np.random.default_rng(seed)
    m, n = data.dense[0].shape
    start = {"init": "custom", "W": draw.random((m, case.rank)), "H": draw.random((n, case.rank))}
    return [
        _of(case, factormer.factorize(data.given, case.rank, **start, **_options(case, data, seed)))
    ]


def _model(case: Case, seed: int, **options: Any) -> Any:
    return factormer.NMF(
        case.rank, beta_loss=case.loss, random_state=seed, **(case.options | options)
    )


def _fitted(model: Any, W: Any, case: Case) -> Answer:
    return Answer(
        W, model.components_.T, model.status_.name, model.n_iter_,
        rmse=model.result_.rmse, loss=model.result_.loss,
    )  # fmt: skip


def _nmf(case: Case, data: Data, seed: int) -> list[Answer]:
    model = _model(case, seed)
    return [_fitted(model, model.fit_transform(data.given), case)]


def _warm_start(case: Case, data: Data, seed: int) -> list[Answer]:
    model = _model(case, seed, warm_start=True, max_iter=5, tol=0).fit(data.given + 0.1)
    model.set_params(**case.options, tol=1e-4)
    return [_fitted(model, model.fit_transform(data.given), case)]


def _halves(V: np.ndarray) -> tuple[slice, slice]:
    return slice(0, len(V) // 2), slice(len(V) // 2, len(V))


def _transform(case: Case, data: Data, seed: int) -> list[Answer]:
    """Rows that the model has not seen."""
    first, second = _halves(data.given)
    model = _model(case, seed, max_iter=2000).fit(data.given[first])
    W = model.transform(data.given[second])
    return [Answer(W, model.components_.T, model.status_.name, model.n_iter_, rows=second)]


def _update_h(case: Case, data: Data, seed: int) -> list[Answer]:
    H = np.abs(np.random.default_rng(99).normal(size=(case.rank, data.given.shape[1])))
    W, _, _ = factormer.non_negative_factorization(
        data.given, H=H, n_components=case.rank, update_H=False, random_state=seed
    )
    return [Answer(W, H.T)]


def _partial_fit(case: Case, data: Data, seed: int) -> list[Answer]:
    model = factormer.NMF(case.rank, forget_factor=1.0, random_state=seed)
    for _ in range(10):
        for batch in np.array_split(data.given, 4):
            model.partial_fit(batch)
    return [Answer(model.transform(data.given), model.components_.T)]


def _mini_batch(case: Case, data: Data, seed: int) -> list[Answer]:
    model = factormer.MiniBatchNMF(
        case.rank, batch_size=30, beta_loss=case.loss, forget_factor=1.0, random_state=seed,
        max_iter=100, tol=1e-5, max_no_improvement=None,
    )  # fmt: skip
    W = model.fit_transform(data.given)
    return [Answer(W, model.components_.T, iterations=model.n_iter_)]


def _many(case: Case, data: Data, seed: int) -> list[Answer]:
    ranks = list(case.rank) if isinstance(case.rank, tuple) else case.rank
    results = factormer.factorize_many(
        data.given, ranks, random_state=_APART * seed, **case.options
    )
    each = enumerate(results)
    return [_of(case, result, of=k, rank=result.W.shape[1]) for k, result in each]


def _sweep(case: Case, data: Data, seed: int) -> list[Answer]:
    """The best replicate of each rank."""
    options = _options(case, data, _APART * seed)
    results = factormer.factorize_many(data.given, list(case.rank), **options)
    best = {}
    for rank, result in zip(results.columns()["rank"], results, strict=True):
        if rank not in best or result.loss < best[rank].loss:
            best[rank] = result
    return [_of(case, result, rank=int(rank)) for rank, result in sorted(best.items())]


def _consensus(case: Case, data: Data, seed: int) -> list[Answer]:
    found = factormer.consensus(
        data.given, case.rank, n_runs=10, loss=case.loss, random_state=_APART * seed
    )
    facts = {"kept": int(found.kept.sum()), "stable": int((found.stability > 0.8).sum())}
    return [Answer(found.W, found.H, found.ended.name, loss=found.loss, facts=facts)]


def _select_rank(case: Case, data: Data, seed: int) -> list[Answer]:
    choice = factormer.select_rank(data.given, range(1, 9), random_state=seed)
    return [Answer(None, None, facts={"rank": choice.rank, "clear": choice.clear})]


def _cross_validate(case: Case, data: Data, seed: int) -> list[Answer]:
    found = factormer.cross_validate(data.given, [2, 4, 6], n_folds=2, random_state=seed)
    least = float(found.mean.min())
    return [Answer(None, None, facts={"rank": found.rank_1se}, hidden=least)]


def _select_loss(case: Case, data: Data, seed: int) -> list[Answer]:
    choice = factormer.select_loss(data.given, random_state=seed)
    return [Answer(None, None, facts={"loss": choice.loss, "kind": choice.kind})]


def _command(case: Case, data: Data, seed: int) -> list[Answer]:
    """`python -m factormer fit`, in this process."""
    folder = Path(tempfile.mkdtemp())
    try:
        np.save(folder / "V.npy", data.given)
        options = [str(word) for pair in case.options.items() for word in pair]
        loss = ["--loss", case.loss, "--seed", str(seed), "--out", str(folder / "run"), "--json"]
        arguments = ["fit", str(folder / "V.npy"), "--rank", str(case.rank), *loss, *options]
        _run(arguments)
        kept = folder / "run" / f"rank-{case.rank}"
        factors, said = (
            np.load(kept / "factors.npz"),
            json.loads((kept / "result.json").read_text()),
        )
        return [
            Answer(
                factors["W"], factors["H"], said["status"], said.get("iterations", 0),
                rmse=said.get("rmse") if case.is_squared else None, loss=said.get("objective"),
            )
        ]  # fmt: skip
    finally:
        shutil.rmtree(folder)


def _run(arguments: list[str]) -> None:
    before, sys.argv = sys.argv, ["factormer", *arguments]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            runpy.run_module("factormer", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise RuntimeError(said.getvalue()) from end
    finally:
        sys.argv = before


ENTRIES: dict[str, Entry] = {
    "factorize": _factorize,
    "NMF": _nmf,
    "transform": _transform,
    "update_H": _update_h,
    "warm_start": _warm_start,
    "custom": _custom,
    "partial_fit": _partial_fit,
    "MiniBatchNMF": _mini_batch,
    "many": _many,
    "sweep": _sweep,
    "consensus": _consensus,
    "select_rank": _select_rank,
    "cross_validate": _cross_validate,
    "select_loss": _select_loss,
    "command": _command,
    "time_limit": _time_limit,
    "interrupted": _interrupted,
}
