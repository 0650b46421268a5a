"""Any value in plain words and numbers, arrays by checksum, to be compared another day."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

from factormer.data.intake import is_sparse


def described(value: Any) -> Any:
    """The value as JSON can write it: what is equal gives the same, and other numbers another."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return described(value.item())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, torch.Tensor | np.ndarray) or is_sparse(value):
        return _array(value)
    if isinstance(value, Mapping):
        return {str(name): described(part) for name, part in value.items()}
    if isinstance(value, list | tuple | range):
        return [described(part) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: described(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__} | parts
    if isinstance(value, type | torch.dtype) or callable(value):
        return str(getattr(value, "__qualname__", None) or value)
    return {"type": type(value).__name__} | described(getattr(value, "__dict__", {}))


def _array(values: Any) -> dict[str, Any]:
    """Shape, type and checksum of all entries."""
    kind = {"shape": list(values.shape), "dtype": str(values.dtype).removeprefix("torch.")}
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.to_sparse_coo().coalesce() if is_sparse(values) else values.numpy()
    if isinstance(values, torch.Tensor):
        parts = [values.values().numpy(), values.indices().numpy()]
    elif is_sparse(values):
        csr = scipy.sparse.csr_array(values)
        parts = [csr.data, csr.indices, csr.indptr]
    else:
        parts = [values]
    return kind | {"sha256": checksum(*parts)}


def checksum(*values: Any) -> str:
    """SHA-256 of arrays and of what JSON can write."""
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
        else:
            digest.update(json.dumps(value, sort_keys=True).encode())
    return digest.hexdigest()
