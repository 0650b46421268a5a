"""The folded Factormer layer against the literal one: time, and the largest tensor either makes.

The literal layer is message passing in PyTorch Geometric, which builds the features of every edge
(tests/reference.py); the folded one is the package's. Both do one H-update with the same weights on
the same matrix, in one process and in turns; the graph of the literal one is built beforehand.
Both run on one thread unless told otherwise: where other jobs hold the cores, threads that wait for
each other measure those jobs (the folded layer, of many short operations, suffers most).
The default size is that of the design note (docs/design/0005-folded-edge-attention.md).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from factormer.data import Dense
from factormer.nn.factormer import FactormerLayer, ModelConfig
from factormer_lab.paper.graphs import Digraph, augmented_line_digraph

ROOT = Path.cwd()
WANTED_RATIO = 20
MODES = ("forward", "forward and backward")

Layer = Callable[[Tensor, Tensor], Tensor]  # from rows of W and of H, (m, d) and (n, d), to (n, d)


def literal_layer(layer: FactormerLayer, graph: Digraph) -> Layer:
    """The same layer as message passing, from the tests of this checkout."""
    if not (ROOT / "tests" / "reference.py").is_file():
        sys.exit(f"the literal layer is tests/reference.py, and {ROOT} has none: use a checkout")
    sys.path.insert(0, str(ROOT))
    try:
        from tests.reference import LiteralFactormer
    except ImportError as error:
        sys.exit(f"the literal layer needs PyTorch Geometric, pip install '.[graph]': {error}")
    literal = LiteralFactormer(layer)

    def update(W: Tensor, H: Tensor) -> Tensor:
        features = torch.cat([W, H])
        return literal(Digraph(graph.side, graph.edges, graph.weight, features))[len(W) :]

    return update


class LargestTensor(TorchDispatchMode):
    """Records the number of entries of the largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.entries = max([self.entries, *sizes])
        return result


def compute(update: Layer, W: Tensor, H: Tensor, mode: str) -> Tensor:
    """One H-update, with the gradient by all weights and both inputs if the mode says so."""
    with torch.set_grad_enabled(mode != "forward"):
        y = update(W, H)
        if y.requires_grad:
            y.square().sum().backward()
    return y


def seconds(
    layers: dict[str, Layer], W: Tensor, H: Tensor, mode: str, repeats: int
) -> dict[str, float]:
    """The best of several runs of each layer; they take turns, so that both see the same load."""
    best = dict.fromkeys(layers, float("inf"))
    for repeat in range(repeats + 1):
        for name, update in layers.items():
            tick = time.perf_counter()
            compute(update, W, H, mode)
            taken = time.perf_counter() - tick
            best[name] = min(best[name], taken) if repeat else best[name]  # the first warms up
    return best


def largest(layers: dict[str, Layer], W: Tensor, H: Tensor, mode: str) -> dict[str, int]:
    """Entries of the largest tensor that each layer makes."""
    entries = {}
    for name, update in layers.items():
        with LargestTensor() as recorder:
            compute(update, W, H, mode)
        entries[name] = recorder.entries
    return entries


def environment() -> dict[str, Any]:
    """All that the seconds may depend on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    packages = ("factormer", "torch", "torch-geometric", "numpy")
    return {
        "cpu": next(names, platform.processor() or platform.machine()),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
    } | {name: metadata.version(name) for name in packages}


def measure(size: int, repeats: int) -> dict[str, Any]:
    """Time and weigh both layers on a random matrix of mean 1, with the paper's width and heads."""
    torch.manual_seed(0)
    config = ModelConfig()
    d = config.width
    W, H = (torch.randn(size, d, requires_grad=True) for _ in range(2))
    V = torch.rand(size, size) * 2
    layer = FactormerLayer(config, last=False)
    graph = augmented_line_digraph(W.detach(), H.detach(), V)
    layers: dict[str, Layer] = {
        "literal": literal_layer(layer, graph),
        "folded": lambda W, H: layer(W, H, [Dense(V.T)]),
    }
    y, z = (compute(update, W, H, "forward") for update in layers.values())
    torch.testing.assert_close(y, z, rtol=1e-3, atol=1e-4)  # or the times compare nothing
    rows = {}
    for mode in MODES:
        best, entries = seconds(layers, W, H, mode, repeats), largest(layers, W, H, mode)
        rows[mode] = {"seconds": best, "ratio": best["literal"] / best["folded"]}
        rows[mode]["largest_tensor"] = entries
    return {
        "size": [size, size],
        "width": d,
        "heads": config.heads,
        "dtype": "float32",
        "repeats": repeats,
        "largest_disagreement": (y - z).abs().max().item(),
        "modes": rows,
        "environment": environment(),
    }


def verdict(result: dict[str, Any]) -> tuple[bool, str]:
    """Whether folding keeps its two promises, and how well."""
    m, n = result["size"]
    bound = m * n * result["width"]
    rows = result["modes"].values()
    ratio = min(row["ratio"] for row in rows)
    entries = max(row["largest_tensor"]["folded"] for row in rows)
    met = ratio >= WANTED_RATIO and entries < bound
    return met, (
        f"{'met' if met else 'NOT met'}: {ratio:.0f} times as fast at least "
        f"(wanted {WANTED_RATIO}), largest folded tensor {entries:,} entries (mn·d is {bound:,})"
    )


def main() -> int:
    """Measure, print the table, write the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=400, help="rows and columns of V")
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the best counts")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/folded_layer.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result = measure(options.size, options.repeats)
    met, sentence = verdict(result)

    print(
        f"one Factormer layer, {options.size}×{options.size}, float32, "
        f"{options.threads} thread(s), best of {options.repeats}"
    )
    print(f"{'':22}{'literal':>12}{'folded':>12}{'ratio':>8}   largest tensor, entries")
    for mode, row in result["modes"].items():
        time_of, size_of = row["seconds"], row["largest_tensor"]
        times = "".join(f"{1e3 * time_of[name]:9.1f} ms" for name in ("literal", "folded"))
        print(
            f"{mode:22}{times}{row['ratio']:8.0f}   "
            f"{size_of['literal']:,} against {size_of['folded']:,}"
        )
    print(sentence)

    options.out.parent.mkdir(parents=True, exist_ok=True)
    numbers = result | {"wanted_ratio": WANTED_RATIO, "met": met}
    options.out.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    print(f"numbers: {options.out}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
