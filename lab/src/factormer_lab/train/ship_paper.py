"""Put the networks with the paper's layers into the package, under their shipped names.

    python -m factormer_lab.train.ship_paper RUNS      # RUNS/NAME/NAME.safetensors, …

What RUNS does not have stays as it is shipped. The card says how many of the planned updates
were made; the curve of the training goes to `lab/results/training`, from where
`factormer reproduce training` draws it. The file of the former version is kept in `lab/released`.
`make golden` follows.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from factormer.data.files import write
from factormer.nn import zoo
from factormer.nn.zoo import load_factormer, read_card, save_model
from factormer_lab.paper.reproduce.measure import compact, rounded
from factormer_lab.paper.reproduce.training import CURVES

SHIPPED = {
    "init-r10-paper": ("init-r10-paper", "4"),
    "accel-r10-paper": ("accel-r10-paper", "2"),
}
WEIGHTS = Path(zoo.__file__).parents[1] / "weights"
RELEASED = Path(__file__).parents[3] / "released"
SHOWN = (0, 1, 5, 20)  # points of a trajectory whose errors are kept


def main() -> None:
    """Copy the weights; the cards get the new names."""
    runs = Path(sys.argv[1])
    for name, (shipped, version) in SHIPPED.items():
        path = runs / name / f"{name}.safetensors"
        if not path.is_file():
            continue
        card = replace(read_card(path), name=shipped, version=version)
        keep(WEIGHTS / f"{shipped}.safetensors", version)
        save_model(load_factormer(path), card, WEIGHTS / f"{shipped}.safetensors")
        metrics = path.with_name("metrics.jsonl")
        if metrics.is_file():
            about = {"network": shipped, "version": version, "device": card.training["device"]}
            CURVES.mkdir(parents=True, exist_ok=True)
            text = compact(rounded({**about, **curve(metrics)}, 4)) + "\n"
            write(CURVES / f"{shipped}.json", text)
        print(f"{shipped}: {card.course['steps']}")


def keep(shipped: Path, version: str) -> None:
    """Copy the file of another version to those of the past, where it is not there yet."""
    if not shipped.is_file():
        return
    card = read_card(shipped)
    past = RELEASED / f"{card.name}-{card.version}.safetensors"
    if card.version != version and not past.exists():
        write(past, shipped.read_bytes())


def curve(metrics: Path) -> dict[str, Any]:
    """The loss every thousand updates, and the errors of both validation sets by epoch."""
    events = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    losses = [event for event in events if "loss" in event and not event["step"] % 1000]
    checks = [event for event in events if "small" in event]
    return {
        "loss": {key: [event[key] for event in losses] for key in ("step", "seconds", "loss")},
        "validation": {
            "step": [event["step"] for event in checks],
            "iterations": list(SHOWN),
            **{
                name: [[event[name][k] for k in SHOWN] for event in checks]
                for name in ("small", "large")
            },
        },
    }


if __name__ == "__main__":
    main()
