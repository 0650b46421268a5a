"""Keep an unfinished training of the paper's acceleration in half the space, and take it up again.

    python experiments/keep_paper.py keep RUNS    # after ship_paper.py RUNS
    python experiments/keep_paper.py give RUNS    # writes RUNS/paper-accel/checkpoint.pt

Of the checkpoint only AdamW's two moments are kept: its weights are those of the shipped network,
exactly, and there is no running average of them (ema = 0). `give` refuses other weights.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from factormer.nn.zoo import load_factormer
from factormer.train.checkpoint import load_checkpoint, save_checkpoint

NAME, SHIPPED = "paper-accel", "accel-r10-paper"
KEPT = Path(__file__).parent / "checkpoints" / f"{NAME}.safetensors"


def main() -> None:
    """Parse, do, say what."""
    what, runs = sys.argv[1:]
    checkpoint = Path(runs) / NAME / "checkpoint.pt"
    {"keep": keep, "give": give}[what](checkpoint)
    print(f"{what}: {checkpoint}")


def keep(checkpoint: Path) -> None:
    """Write the moments, and beside them what else the training needs to go on."""
    found = load_checkpoint(checkpoint, torch.device("cpu"))
    learner, weights = found["learner"], shipped()
    for copy in ("model", "average"):
        if any(not torch.equal(learner[copy][name], weights[name]) for name in weights):
            raise ValueError(f"{checkpoint} has other weights than {SHIPPED}; run ship_paper.py")
    moments = {
        f"{index}.{moment}": state[moment]
        for index, state in learner["optimizer"].items()
        for moment in ("exp_avg", "exp_avg_sq")
    }
    rest = {key: found[key] for key in ("config", "step", "seconds")}
    rest["optimizer step"] = float(learner["optimizer"][0]["step"])
    save_file(moments, KEPT, {"rest": json.dumps(rest), "weights": checksum(weights)})


def give(checkpoint: Path) -> None:
    """Write the checkpoint that `factormer train` and `paper_networks.py train` continue."""
    with safe_open(KEPT, "pt") as file:
        metadata = file.metadata()
    weights = shipped()
    if checksum(weights) != metadata["weights"]:
        raise ValueError(f"{KEPT} belongs to other weights than those of {SHIPPED}; keep it anew")
    rest = json.loads(metadata["rest"])
    optimizer: dict[int, dict[str, Tensor]] = {}
    for key, moment in load_file(KEPT).items():
        index, _, name = key.partition(".")
        step = torch.tensor(rest["optimizer step"])
        optimizer.setdefault(int(index), {"step": step})[name] = moment
    learner = {
        "model": weights,
        "average": {name: tensor.clone() for name, tensor in weights.items()},
        "optimizer": dict(sorted(optimizer.items())),
    }
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Any] = {key: rest[key] for key in ("config", "step", "seconds")}
    save_checkpoint(checkpoint, {**contents, "learner": learner})


def shipped() -> dict[str, Tensor]:
    """The weights of the shipped network."""
    return {name: tensor.detach() for name, tensor in load_factormer(SHIPPED).state_dict().items()}


def checksum(weights: dict[str, Tensor]) -> str:
    """SHA-256 of all weights, in the order of their names."""
    joined = b"".join(weights[name].contiguous().numpy().tobytes() for name in sorted(weights))
    return hashlib.sha256(joined).hexdigest()


if __name__ == "__main__":
    main()
