"""The folded Factormer layer against the literal one: time, and the largest tensor either makes.

The literal layer is message passing in PyTorch Geometric, which builds the features of every edge
(lab/tests/reference.py); the folded one is the package's. Both do one H-update with the same
weights on the same matrix, in turns; the graph of the literal one is built beforehand.
Both run on one thread unless told otherwise, since threads that wait for each other measure other
work. The default size is that of the design note (docs/design/0005-folded-edge-attention.md). The
status is 1 if the folded layer is less than 20 times as fast, or makes a tensor of mn·d entries.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from factormer.data import Dense
from factormer.nn.factormer import FactormerLayer, ModelConfig
from factormer_lab.bench.environment import environment
from factormer_lab.paper.graphs import Digraph, augmented_line_digraph

WANTED_RATIO = 20
MODES = ("forward", "forward and backward")

Layer = Callable[[Tensor, Tensor], Tensor]  # from rows of W and of H, (m, d) and (n, d), to (n, d)


def literal_layer(layer: FactormerLayer, graph: Digraph) -> Layer:
    """Return the same layer as message passing, from the tests of this checkout."""
    sys.path.insert(0, str(Path.cwd()))
    from lab.tests.reference import LiteralFactormer

    literal = LiteralFactormer(layer)

    def update(W: Tensor, H: Tensor) -> Tensor:
        features = torch.cat([W, H])
        return literal(Digraph(graph.side, graph.edges, graph.weight, features))[len(W) :]

    return update


class LargestTensor(TorchDispatchMode):
    """A recorder of the number of entries of the largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.entries = max([self.entries, *sizes])
        return result


def compute(update: Layer, W: Tensor, H: Tensor, mode: str) -> Tensor:
    """Make one H-update, with the gradient by all weights and both inputs if the mode says so."""
    with torch.set_grad_enabled(mode != "forward"):
        y = update(W, H)
        if y.requires_grad:
            y.square().sum().backward()
    return y


def compared(layers: dict[str, Layer], W: Tensor, H: Tensor, mode: str, repeats: int) -> Any:
    """Return the least seconds of each layer, by turns, and the entries of its largest tensor."""
    rows = {}
    for name, update in layers.items():
        with LargestTensor() as recorder:
            compute(update, W, H, mode)  # which warms up, too
        rows[name] = {"seconds": float("inf"), "entries": recorder.entries}
    for _ in range(repeats):
        for name, update in layers.items():
            begun = time.perf_counter()
            compute(update, W, H, mode)
            rows[name]["seconds"] = min(rows[name]["seconds"], time.perf_counter() - begun)
    return rows


def main() -> int:
    """Measure both layers on a random matrix of mean 1, with the paper's width and heads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=400, help="rows and columns of V")
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the best counts")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/folded_layer.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config, size = ModelConfig(), options.size
    W, H = (torch.randn(size, config.width, requires_grad=True) for _ in range(2))
    V = torch.rand(size, size) * 2
    layer = FactormerLayer(config, last=False)
    graph = augmented_line_digraph(W.detach(), H.detach(), V)
    layers: dict[str, Layer] = {
        "literal": literal_layer(layer, graph),
        "folded": lambda W, H: layer(W, H, [Dense(V.T)]),
    }
    y, z = (compute(update, W, H, "forward") for update in layers.values())
    torch.testing.assert_close(y, z, rtol=1e-3, atol=1e-4)  # or the times compare nothing

    print(f"one Factormer layer, {size}×{size}, {options.threads} thread(s)")
    met, rows = True, {}
    for mode in MODES:
        rows[mode] = row = compared(layers, W, H, mode, options.repeats)
        ratio = row["literal"]["seconds"] / row["folded"]["seconds"]
        met &= ratio >= WANTED_RATIO and row["folded"]["entries"] < size**2 * config.width
        told = (
            f"{k} {1e3 * x['seconds']:.1f} ms, {x['entries']:,} entries" for k, x in row.items()
        )
        print(f"{mode:22} {'; '.join(told)}; {ratio:.0f} times as fast")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    numbers = {"size": size, "modes": rows, "met": met, "environment": environment()}
    options.out.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return 0 if met else 1
