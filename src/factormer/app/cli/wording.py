"""Errors in the words of the command line: --max-iter, not max_iter."""

from __future__ import annotations

import re

# Keywords of Python, and the options that they are here.
_OPTIONS = {
    **{"max_iter": "max-iter", "time_limit": "time-limit", "n_init": "n-init"},
    **{"memory_limit": "memory-limit", "random_state": "seed", "n_runs": "repeats"},
    **{"regularize_W": "regularize-w", "regularize_H": "regularize-h"},
    **{"rows_are": "rows-are", "columns_are": "columns-are"},
    **{"row_labels": "row-labels", "column_labels": "column-labels"},
    **{name: name for name in ("rank", "tol", "init", "solver", "accelerator", "loss", "layout")},
    **{name: name for name in ("holdout", "repeats", "missing", "device", "symmetric", "resize")},
    **{name: name for name in ("mask", "weights", "seed", "key")},
}
_UNIQUE = [name for name in _OPTIONS if "_" in name]  # words of no other meaning
_PHRASES = {
    "pass V.toarray()": "save V as a dense file",
    "pass V in float64": "save V in float64",
    "passed": "given",
}


def as_typed(sentence: str) -> str:
    """The sentence with options in place of keywords."""
    for phrase, ours in _PHRASES.items():
        sentence = re.sub(rf"\b{re.escape(phrase)}(?!\w)", ours, sentence)
    names = "|".join(map(re.escape, _OPTIONS))
    sentence = re.sub(  # symmetric=True, missing="zeros"
        rf"(?<![\w-])({names})=(['\"]?)([\w.+-]+)\2",
        lambda m: _option(m[1]) + ("" if m[3] == "True" else f" {m[3]}"),
        sentence,
    )
    sentence = re.sub(  # the subject of the sentence
        rf"^({names}) (is|are|has|holds|must)\b",
        lambda m: f"{_option(m[1])} {m[2]}",
        sentence,
    )
    unique = "|".join(map(re.escape, _UNIQUE))
    return re.sub(rf"(?<![\w-])({unique})(?!\w)", lambda m: _option(m[1]), sentence)


def _option(name: str) -> str:
    return f"--{_OPTIONS[name]}"
