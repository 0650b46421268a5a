"""The command line on files made for it, sound and damaged."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from tests.fuzz.build import Case
from tests.fuzz.claims import Broken, Refused, claim, factors_are_finite
from tests.fuzz.exact import objective

FLAWS = re.compile(r"Traceback|error of the program itself|allow_pickle|infs or NaNs")


def command_line(case: Case) -> str:
    """`factormer fit` ends with an answer that is right, or with a sentence."""
    from factormer.app.cli import main

    with tempfile.TemporaryDirectory() as folder:
        suffix = case.spec["file"].replace("-sparse", "")
        path = Path(folder) / f"data.{suffix}"
        _write(path, case)
        if damage := case.spec.get("damage"):
            _damage(path, damage, case)
        out = Path(folder) / "run"
        said = ["fit", str(path), "--out", str(out), "--json", *_flags(case)]
        stdout, stderr = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            code = main(said)
        text = stderr.getvalue()
        if code:
            claim(code in (1, 2), "the_command_line_ends_in_a_sentence", f"{code}: {text[-300:]}")
            claim(not FLAWS.search(text), "the_command_line_ends_in_a_sentence", text[-300:])
            claim(len(text) > 25, "the_command_line_ends_in_a_sentence", repr(text))
            raise Refused(f"command line: {text[-200:]}".replace(folder, "DIR"))
        if case.spec.get("wrong") or damage:
            return "ANSWERED"
        try:
            report = json.loads(stdout.getvalue())["results"][0]
        except ValueError as error:
            raise Broken("the_command_line_prints_json", stdout.getvalue()[-200:]) from error
        with np.load(next(out.rglob("factors.npz"))) as kept:
            W, H = kept["W"].astype(float), kept["H"].astype(float)
    if W.shape[0] != case.A.shape[0] or H.shape[0] != case.A.shape[1]:
        return "ANSWERED"  # a first line, or column, was taken for labels
    factors_are_finite(W, H)
    known = 1.0 - np.isnan(case.A)  # what a file does not say is left out
    truth = objective(case.A, known, W, H, eps=max(case.eps, 1e-15))
    size = np.sqrt((case.A[known > 0].astype(np.longdouble) ** 2).mean())
    if size < 1e3 * np.finfo(np.float64).tiny:  # numbers with few digits, or none
        return report["status"]
    room = truth.blur + 1e-5 * truth.rmse + 1e-6 * size
    rmse = np.nan if report["rmse"] is None else report["rmse"]
    what = f"rmse {rmse:g}, in truth {truth.rmse:g}"
    claim(abs(rmse - truth.rmse) <= room, "the_command_line_reports_what_is", what)
    explained = 1 - (truth.rmse / size) ** 2 if size else None
    if explained is not None and np.isfinite(float(explained)) and truth.rmse < 1e150:
        said = np.nan if report["explained"] is None else report["explained"]
        what = f"explained {said:g}, in truth {explained:g}"
        near = abs(said - explained) <= 1e-4 * max(1, abs(explained))
        claim(near, "the_command_line_reports_what_is", what)
    return report["status"]


def _flags(case: Case) -> list[str]:
    spec, flags = case.spec, ["--rank", str(case.rank), "--no-progress"]
    names = {"solver": "--solver", "tol": "--tol", "max_iter": "--max-iter", "loss": "--loss",
             "time_limit": "--time-limit", "accelerator": "--accelerator"}  # fmt: skip
    for name, flag in names.items():
        if name in spec:
            flags += [flag, str(spec[name])]
    if spec.get("init", "custom") != "custom":
        flags += ["--init", spec["init"]]
    for side, flag in (("on_w", "--regularize-w"), ("on_h", "--regularize-h")):
        for name, *values in spec.get(side, ()):
            if name != "Fixed":
                flags += [flag, ":".join([name.lower(), *map(str, values)])]
    if spec.get("symmetric"):
        flags.append("--symmetric")
    if spec.get("wrong"):
        key, value = spec["wrong"]
        flags += _wrong(key, value)
    return flags


def _wrong(key: str, value: Any) -> list[str]:
    if key == "penalty":
        return ["--regularize-h", ":".join(str(part).lower() for part in value)]
    flag = {"random_state": "--seed", "weights": "--weights", "mask": "--mask"}.get(key)
    return [flag or f"--{key.replace('_', '-')}", str(value)]


def _write(path: Path, case: Case) -> None:
    A = case.A.astype(case.dtype)
    if A.ndim != 2 or case.spec["data"].get("flaw") == "empty":
        A = A[:0]
    match case.spec["file"]:
        case "csv" | "csv.gz" | "tsv":
            mark = "\t" if path.suffix == ".tsv" else ","
            text = "\n".join(mark.join(repr(float(v)) for v in row) for row in A) + "\n"
            data = text.encode()
            path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        case "npy":
            np.save(path, A)
        case "npz":
            np.savez(path, V=A)
        case "npz-sparse":
            S: Any = scipy.sparse.csr_matrix(A)
            flaw = case.spec["data"].get("flaw")
            if S.nnz and flaw in ("index-high", "index-negative", "index-huge"):
                S.indices[0] = {"index-high": A.shape[1], "index-negative": -1}.get(flaw, 2**30)
            if S.nnz and flaw == "indptr-end":
                S.indptr[-1] += 1000
            np.savez(path, indices=S.indices, indptr=S.indptr, format=np.array(b"csr"),
                     shape=np.array(S.shape), data=S.data)  # fmt: skip
        case "mtx":
            scipy.io.mmwrite(path, scipy.sparse.coo_matrix(A))
        case "mat":
            scipy.io.savemat(path, {"V": A})


def _damage(path: Path, damage: str, case: Case) -> None:
    data = path.read_bytes()
    match damage:
        case "cut":
            data = data[: int(len(data) * case.rng.random())]
        case "empty":
            data = b""
        case "noise":
            noisy = bytearray(data)
            for at in case.rng.integers(len(data), size=5) if data else ():
                noisy[at] = int(case.rng.integers(256))
            data = bytes(noisy)
        case _ if path.suffix in (".csv", ".tsv"):
            cells = {"text-cell": b"x1_000", "nan-cell": b"nan", "huge-cell": b"1e400"}
            mark = b"\t" if path.suffix == ".tsv" else b","
            lines = data.splitlines()
            line = lines[-1].split(mark)
            line[-1] = cells.get(damage, b"1,2,3")
            data = b"\n".join([*lines[:-1], mark.join(line)])
    path.write_bytes(data)
