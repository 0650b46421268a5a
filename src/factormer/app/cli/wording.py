"""Options in the spelling of the command line: --max-iter, not max_iter."""

from __future__ import annotations

import inspect
from functools import cache

from factormer.app.cli import fit
from factormer.sentence import Option, Sentence, sentence_of

# Keywords of Python that have another name here.
_OURS = {"random_state": "seed", "n_runs": "repeats"}
# What Python does with data, and what is done here instead.
PHRASES = {
    "pass V.toarray()": "save V as a dense file",
    "V.toarray()": "save V as a dense file",
    "pass V in float64": "save V in float64",
    "passed": "given",
    "use NMF(missing='nan')": "write NaN",
}


def typed(error: BaseException) -> str:
    """The text of an error with options as they are typed."""
    said = sentence_of(error)
    return said.spelled(spelled) if isinstance(said, Sentence) else said


def spelled(option: Option) -> str:
    """An option as it is typed, with its value; what the command line lacks is as in Python."""
    if option.name in PHRASES:
        return PHRASES[option.name]
    name = _OURS.get(option.name, option.name.lower())
    if name not in _parameters():
        return str(option)
    flag = f"--{name.replace('_', '-')}"
    if option.value in (None, "True"):
        return flag
    return f"{flag} {'none' if option.value == 'None' else option.value}"


@cache
def _parameters() -> frozenset[str]:
    """The options of the command that has them all."""
    return frozenset(inspect.signature(fit.fit).parameters)
