"""Fitted models as safetensors files: arrays, and JSON text beside them. Loading runs no code."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as as_bytes

from factormer.penalties import Fixed, Penalties, Penalty
from factormer.solve import Status
from factormer.stream import Statistics
from factormer.trace import Row, Trace

FORMAT = "factormer-nmf-1"
_NUMBERS = ("n_iter_", "n_components_", "n_features_in_", "n_steps_", "reconstruction_err_")


def save(model: Any, path: Path) -> None:
    """Write parameters, components, what `partial_fit` needs, the trace and `set_output`'s choice.

    The file comes whole or not at all. A `callback` and a random state that is no number have no
    text and are left out.
    """
    arrays: dict[str, Any] = {"components_": model.components_, "past": model._before()[0]}
    params, text = {}, {}
    for name, value in model.get_params(deep=False).items():
        if isinstance(value, Path):
            value = str(value)
        if name == "fixed_components" and value is not None:
            arrays["fixed_components"] = value
        elif name.startswith("regularize_"):
            params[name] = [_told(term) for term in Penalties.of(value, name).terms] or None
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
        text["status"] = model.status_.name
    text |= {name: getattr(model, name) for name in _NUMBERS if hasattr(model, name)}
    text["past_rows"] = model._before()[1]
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
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(whole)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OSError(
            f"{path} cannot be written ({error.strerror}); choose a file in a folder that is there"
        ) from error


def _told(term: Penalty) -> dict[str, Any]:
    """A penalty as text: its name, and its numbers."""
    if isinstance(term, Fixed):
        raise ValueError("a model with Fixed in regularize_W or regularize_H cannot be saved: use "
                         "fixed_components, which can")  # fmt: skip
    return {"name": type(term).__name__, **asdict(term)}


def _heard(told: list[dict[str, Any]] | None) -> list[Penalty] | None:
    """The penalties that a text names; no other name means anything."""
    kinds = {kind.__name__: kind for kind in Penalty.__subclasses__()}
    return None if told is None else [kinds[term.pop("name")](**term) for term in told]


def load_into(model: Any, path: Path) -> None:
    """Give a fresh model what a file holds."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; write one with NMF.save")
    try:
        with safe_open(path, "pt") as file:
            head = file.metadata() or {}
            if head.get("format") != FORMAT:
                raise ValueError(
                    f"{path} is no saved NMF model (its format is {head.get('format')!r} and not "
                    f"{FORMAT!r}); write one with NMF.save"
                )
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is no whole safetensors file ({error}); write it anew with NMF.save"
        ) from error
    try:
        _give(model, arrays, head)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} lacks a part of a saved NMF model, or has one too many ({error}); write it "
            "anew with NMF.save"
        ) from error


def _give(model: Any, arrays: dict[str, torch.Tensor], head: dict[str, str]) -> None:
    params, text = json.loads(head["params"]), json.loads(head["fitted"])
    if "fixed_components" in arrays:
        params["fixed_components"] = arrays["fixed_components"].numpy()
    for name in ("regularize_W", "regularize_H"):
        params[name] = _heard(params.get(name))
    model.set_params(**params)
    H = arrays["components_"]
    model.components_ = H if text["is_tensor"] else H.numpy()
    model._past = (arrays["past"], text["past_rows"])
    model._stream = None
    if "stream_A" in arrays:
        model._stream = Statistics(arrays["stream_A"], arrays["stream_B"], text["stream_rows"])
    if "status" in text:
        columns = (arrays[name].tolist() for name in ("iteration", "seconds"))
        model.trace_ = Trace(Row(*row) for row in zip(*columns, arrays["rmse"], strict=True))
        model.status_ = Status[text["status"]]
    for name in _NUMBERS:
        if name in text:
            setattr(model, name, text[name])
    if text.get("output") is not None:  # which files of version 0.1 do not tell
        model.set_output(transform=text["output"])
    if "feature_names_in_" in text:
        model.feature_names_in_ = np.array(text["feature_names_in_"], dtype=object)
