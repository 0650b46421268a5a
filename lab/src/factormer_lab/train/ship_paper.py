"""Put the networks with the paper's layers into the package, under their shipped names.

    python -m factormer_lab.train.ship_paper RUNS      # RUNS/paper-accel/paper-accel.safetensors, …

What RUNS does not have stays as it is shipped. The card says how many of the planned updates
were made; `make golden` follows.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from factormer.nn import zoo
from factormer.nn.zoo import load_factormer, read_card, save_model

SHIPPED = {"init-r10-paper": ("init-r10-paper", "4"), "paper-accel": ("accel-r10-paper", "1")}
WEIGHTS = Path(zoo.__file__).parents[1] / "weights"


def main() -> None:
    """Copy the weights; the cards get the new names."""
    runs = Path(sys.argv[1])
    for name, (shipped, version) in SHIPPED.items():
        path = runs / name / f"{name}.safetensors"
        if not path.is_file():
            continue
        card = replace(read_card(path), name=shipped, version=version)
        save_model(load_factormer(path), card, WEIGHTS / f"{shipped}.safetensors")
        print(f"{shipped}: {card.course['steps']}")


if __name__ == "__main__":
    main()
