"""One specification, one verdict: what a worker does."""

from __future__ import annotations

import re
import time
import traceback
from typing import Any

from tests.fuzz.specs import SPARSE, Spec

REMAKE = ("stack", "partial_fit", "command_line")  # entries that hand over another array


def judge(spec: Spec) -> dict[str, Any]:
    """{"verdict": "answered", "refused" or "failed", …}; a failure has a claim and a sentence."""
    from tests.fuzz.build import case_of
    from tests.fuzz.claims import Broken, Refused
    from tests.fuzz.entries import ENTRIES

    clock = time.perf_counter()
    try:
        outcome: dict[str, Any] = {"verdict": "answered"}
        case = case_of(spec)
        outcome["status"] = ENTRIES[spec["entry"]](case)
        if case.is_malformed and spec["entry"] not in REMAKE:
            outcome |= {"verdict": "failed", "claim": "malformed_inputs_are_refused", "what": ""}
    except Refused as refusal:
        outcome = {"verdict": "refused", "what": str(refusal)}
        if should_be_answered(spec):
            outcome |= {"verdict": "failed", "claim": "sound_inputs_are_answered"}
    except Broken as broken:
        outcome = {"verdict": "failed", "claim": broken.claim, "what": broken.what}
    except Exception as error:
        text = "".join(traceback.format_exception(error)[-3:])
        ours = "factormer" in traceback.extract_tb(error.__traceback__)[-1].filename
        name = "errors_are_sentences" if ours else "the_fuzzer_is_right"
        outcome = {"verdict": "failed", "claim": name, "what": text[-600:]}
    outcome["seconds"] = round(time.perf_counter() - clock, 4)
    return outcome


def should_be_answered(spec: Spec) -> bool:
    """Whether this is plain data with plain options, which nothing may refuse."""
    data = spec["data"]
    odd = ("wrong", "damage", "known", "on_w", "on_h", "solver", "init", "accelerator", "symmetric",
           "words", "weight_exponent")  # fmt: skip
    limit = 8 if data["dtype"] == "float32" else 80
    return (
        not any(spec.get(name) for name in odd)
        and data["dtype"] in ("float64", "float32")
        and "flaw" not in data
        and abs(data["exponent"]) <= limit
        and data["kind"] != "wide-range"
        and (not isinstance(spec.get("loss"), float) or 0 < spec["loss"] <= 3)
        and (spec.get("loss") != "itakura-saito" or bool(data.get("positive")))
        and not (data.get("positive") is None and data["zeros"] == 1.0)
        and spec["entry"] != "partial_fit"
        and not (spec["entry"] == "command_line" and data["layout"] in SPARSE)
    )


def cluster(outcome: dict[str, Any]) -> str:
    """Failures that look alike: numbers left out."""
    text = re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?|\binf\b|\bnan\b", "#", outcome.get("what", ""))
    return f"{outcome.get('claim')}: {text[:140]}"
