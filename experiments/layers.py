"""The paper's layers and our refining ones at equal updates, data, batches, seeds and rates.

    python experiments/layers.py --device cuda --updates 2000 --seeds 0 1     # some 3 minutes

Both are trained as `init-r10-literal` and `init-r10-clean` were (batches of 256, log RMSE, T = 3,
γ = 0.7), for as many updates as asked. The table has the median RMSE on the validation sets of the
network alone and one AO-ADMM iteration later; the numbers go to --out.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from factormer.nn.refining import Network
from factormer.train.config import TrainConfig
from factormer.train.factormer import train_factormer
from factormer.train.loop import Run
from factormer.train.synthetic import TRAINING

CONFIG = Path(__file__).parent / "configs" / "init-r10-literal.toml"


def main() -> None:
    """Train, print a table, write the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("layers.json"))
    options = parser.parse_args()
    print(f"{'layers':10} {'seed':>4} {'updates':>8} {'seconds':>8}  small, large: alone; + 1")
    rows = []
    for seed in options.seeds:
        for variant in ("paper", "refining"):
            config = asked(variant, seed, options.updates, options.batch)
            with TemporaryDirectory() as folder:
                run = train_factormer(config, Path(folder), device=options.device)
            rows.append(row(variant, seed, config, run))
            small, large = rows[-1]["small"], rows[-1]["large"]
            print(
                f"{variant:10} {seed:4} {run.step:8} {run.seconds:8.0f}  "
                f"{small[0]:.4g}, {large[0]:.4g}; {small[1]:.4g}, {large[1]:.4g}",
                flush=True,
            )
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


def asked(variant: str, seed: int, updates: int, batch: int) -> TrainConfig:
    """The same run for either kind of layers: one cosine over `updates` updates."""
    base = TrainConfig.load(CONFIG)
    per_epoch = sum(base.copies * size.count // batch for size in TRAINING)
    return replace(
        base,
        name=f"layers-{variant}",
        model=replace(base.model, variant=variant),
        epochs=max(1, round(updates / per_epoch)),
        batch=batch,
        seed=seed,
    )


def row(variant: str, seed: int, config: TrainConfig, run: Run[Network]) -> dict[str, object]:
    """What is kept of a run."""
    return {
        "layers": variant,
        "seed": seed,
        "updates": run.step,
        "seconds": round(run.seconds, 1),
        **run.figures,
        "config": asdict(config),
    }


if __name__ == "__main__":
    main()
