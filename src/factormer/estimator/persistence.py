"""Fitted models as safetensors files: arrays and JSON text. Loading runs no code."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as as_bytes

from factormer.data.files import parsed, write
from factormer.estimator.options import Asked, Known, loss_of
from factormer.estimator.streaming import before
from factormer.problem.loss import Loss
from factormer.problem.penalties import Fixed, Penalties, Penalty
from factormer.run.result import Status
from factormer.run.trace import Row, Trace
from factormer.solvers.online import Statistics

FORMAT = "factormer-nmf-1"
_ERROR = "reconstruction_err_"
_NUMBERS = ("n_iter_", "n_components_", "n_features_in_", "n_steps_", _ERROR)
_OUTPUTS = ("default", "pandas", "polars")


def save(model: Any, path: Path) -> None:
    """Write parameters, components, what `partial_fit` needs, the trace and `set_output`'s choice.

    The file is written completely or not at all. A `callback`, and a random state that is not a
    number, are left out.
    """
    arrays: dict[str, Any] = {"components_": model.components_, "past": before(model)[0]}
    params, text = {}, {}
    for name, value in model.get_params(deep=False).items():
        if isinstance(value, Path):
            value = str(value)
        if name == "fixed_components" and value is not None:
            arrays["fixed_components"] = value
        elif name.startswith("regularize_"):
            params[name] = [_as_text(term) for term in Penalties.of(value, name).terms] or None
        elif isinstance(value, Loss):
            params[name] = _number(value)
        elif isinstance(value, np.generic):
            params[name] = value.item()
        elif value is None or isinstance(value, str | int | float | bool):
            params[name] = value
    if model._stream is not None:
        A, B, n_rows = model._stream
        arrays |= {"stream_A": A, "stream_B": B}
        text["stream_rows"] = n_rows
    if hasattr(model, "trace_"):
        trace: Trace = model.trace_
        arrays |= {"iteration": trace.iteration, "seconds": trace.seconds, "rmse": trace.rmse}
        arrays["passes"] = trace.passes
        text["status"] = model.status_.name
    text |= {name: getattr(model, name) for name in _NUMBERS if hasattr(model, name)}
    text["past_rows"] = before(model)[1]
    if hasattr(model, "feature_names_in_"):
        text["feature_names_in_"] = list(model.feature_names_in_)
    text["is_tensor"] = isinstance(model.components_, torch.Tensor)
    text["output"] = getattr(model, "_sklearn_output_config", {}).get("transform")
    tensors = {k: torch.as_tensor(np.asarray(v) if not isinstance(v, torch.Tensor) else v)
               for k, v in arrays.items()}  # fmt: skip
    whole = as_bytes(
        {k: t.detach().cpu().contiguous() for k, t in tensors.items()},
        {"format": FORMAT, "params": json.dumps(params), "fitted": json.dumps(text)},
    )
    write(path, whole)


def _as_text(term: Penalty) -> dict[str, Any]:
    """A penalty as text: its name, and its numbers."""
    if isinstance(term, Fixed):
        raise ValueError("a model with Fixed in regularize_W or regularize_H cannot be saved: use "
                         "fixed_components, which can")  # fmt: skip
    return {"name": type(term).__name__, **asdict(term)}


def _number(loss: Loss) -> float:
    """The β that stands for a loss."""
    if loss.kernel_beta is None:
        raise ValueError(
            f"a model with beta_loss {loss} cannot be saved: a file names losses by β, and this "
            "one has none; keep components_ instead"
        )
    return loss.kernel_beta


def _from_text(text: Any) -> list[Penalty] | None:
    """The penalties that a text names; other names are refused."""
    if text is None:
        return None
    if not isinstance(text, list) or not all(isinstance(term, dict) for term in text):
        raise ValueError(f"penalties are {text!r:.40}; they must be a list of objects")
    kinds = {kind.__name__: kind for kind in Penalty.__subclasses__()}
    return [kinds[term.pop("name")](**term) for term in text]


def load_into(model: Any, path: Path) -> None:
    """Give a fresh model what a file holds."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; write one with NMF.save")
    try:
        with safe_open(path, "pt") as file:
            head = file.metadata() or {}
            if head.get("format") != FORMAT:
                raise ValueError(
                    f"{path} is not a saved NMF model (its format is {head.get('format')!r}, not "
                    f"{FORMAT!r}); write one with NMF.save"
                )
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is not a complete safetensors file ({error}); write it again with NMF.save"
        ) from error
    try:
        _give(model, arrays, head)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} lacks a part of a saved NMF model, or has one too many ({error}); write it "
            "again with NMF.save"
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{path} is not an NMF model as it was saved: {error}; write it again with NMF.save"
        ) from error


def _give(model: Any, arrays: dict[str, torch.Tensor], head: dict[str, str]) -> None:
    params, text = (parsed(head[name]) for name in ("params", "fitted"))
    if not isinstance(params, dict) or not isinstance(text, dict):
        raise ValueError("its params, or its fitted values, are not a JSON object")
    if "fixed_components" in arrays:
        params["fixed_components"] = arrays["fixed_components"].numpy()
    for name in ("regularize_W", "regularize_H"):
        params[name] = _from_text(params.get(name))
    if unknown := params.keys() - model.get_params(deep=False).keys():
        raise ValueError(f"there are no parameters {sorted(unknown)}")
    model.set_params(**params)
    loss_of(model.beta_loss, model.solver)
    H = _components(arrays["components_"], signed=not Asked.read(model).also_h.nonnegative)
    r, n = H.shape
    for name in _NUMBERS:
        if name in text:
            setattr(model, name, _typed(text, name, int, *([float] if name == _ERROR else [])))
    if (model.n_components_, model.n_features_in_) != (r, n):
        raise ValueError(
            f"components_ has shape {(r, n)}, for {model.n_components_} components of "
            f"{model.n_features_in_} features"
        )
    Known.read(model.fixed_components, r, n, H)
    model.components_ = H if _typed(text, "is_tensor", bool) else H.numpy()
    past_rows = _typed(text, "past_rows", int)
    model._past, model._stream = (_shaped(arrays, "past", (r, r)), past_rows), None
    if "stream_A" in arrays:
        A, B = _shaped(arrays, "stream_A", (n, r)), _shaped(arrays, "stream_B", (r, r))
        model._stream = Statistics(A, B, _typed(text, "stream_rows", int, float))
    if "status" in text:
        size = (arrays["iteration"].numel(),)
        columns = (_shaped(arrays, name, size).tolist() for name in ("iteration", "seconds"))
        rmse = _shaped(arrays, "rmse", size)
        passes = _shaped(arrays, "passes", size).tolist() if "passes" in arrays else size[0] * [0]
        model.trace_ = Trace(Row(*row) for row in zip(*columns, rmse, passes, strict=True))
        model.status_ = Status[text["status"]]
    if text.get("output") is not None:  # files of version 0.1 do not have it
        if text["output"] not in _OUTPUTS:
            raise ValueError(f"output is {text['output']!r}; it must be one of {_OUTPUTS}")
        model.set_output(transform=text["output"])
    if "feature_names_in_" in text:
        names = _typed(text, "feature_names_in_", list)
        if len(names) != n or not all(isinstance(name, str) for name in names):
            raise ValueError(f"feature_names_in_ are not the names of {n} features")
        model.feature_names_in_ = np.array(names, dtype=object)


def _components(H: torch.Tensor, *, signed: bool) -> torch.Tensor:
    """Check a matrix of finite numbers, not negative unless they may be."""
    if H.dim() != 2 or 0 in H.shape or H.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"components_ is {H.dtype} of shape {tuple(H.shape)}, not a matrix of floats"
        )
    if not bool(H.isfinite().all()):
        raise ValueError("components_ has entries that are NaN or infinite")
    if not signed and bool((H < 0).any()):
        raise ValueError("components_ has entries below zero")
    return H


def _shaped(arrays: dict[str, torch.Tensor], name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """An array of finite real numbers."""
    found = arrays[name]
    if tuple(found.shape) != shape or found.is_complex() or not bool(found.isfinite().all()):
        raise ValueError(
            f"{name} has shape {tuple(found.shape)}; it must be finite, of shape {shape}"
        )
    return found


def _typed(text: dict[str, Any], name: str, *kinds: type) -> Any:
    value = text[name]
    if type(value) not in kinds:
        raise ValueError(f"{name} is {value!r:.40}; it must be {kinds[0].__name__}")
    return value
