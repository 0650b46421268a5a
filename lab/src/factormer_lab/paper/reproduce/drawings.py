"""Figures 1 to 4: the graphs of sections 3 and 4 as `paper.graphs` makes them, and the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from factormer_lab.paper.graphs import (
    Digraph,
    Side,
    augmented_line_digraph,
    concatenation,
    edge_products,
    koenig,
    line_digraph,
)
from factormer_lab.paper.reproduce import style

W = torch.tensor([[13.0, 7], [0, 2], [4, 9], [11, 5]])  # the example of eq. 5
H = torch.tensor([[6.0, 12], [8, 10], [3, 1]])
# The edges of the paper's figure 2, rows and columns counted from 1.
DRAWN_THERE = {(1, 1), (1, 2), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (4, 3)}
_ROW, _COLUMN, _COMPONENT = "#c8c8ff", "#c8ffc8", "#ffe2b8"  # as in the paper; the last is ours
_FILL = {Side.ROW: _ROW, Side.COLUMN: _COLUMN, Side.COMPONENT: _COMPONENT}
_DARK, _NEW = "#555555", "#d55e00"

Places = Mapping[int, tuple[float, float]]


def koenig_figure() -> tuple[dict[str, Any], Any]:
    """Figure 1: a matrix and its König digraph, in which zeros are no edges."""
    V = torch.tensor([[2.0, 0, 5], [0, 3, 1]])
    graph = koenig(V)
    with style.figure(6.4, 2.6) as drawing:
        left, right = drawing.subplots(1, 2, width_ratios=(1, 1.6))
        _matrix(left, V, "V")
        places = _columns(graph, (0.0, 1.0))
        _graph(right, graph, places, [*_named("row", 2), *_named("column", 3)], weights=0.3)
        right.set_title("its König digraph")
    return {"V": V.tolist(), "edges": _edges(graph)}, drawing


def example_figure() -> tuple[dict[str, Any], Any]:
    """Figure 2: the example of eq. 5 as an augmented line digraph, with all of its edges."""
    graph = augmented_line_digraph(W, H, W @ H.mT)
    drawn = [(i + 1, j + 1 - len(W)) in DRAWN_THERE for i, j in graph.edges.T.tolist()]
    labels = [f"({a:g}, {b:g})" for a, b in torch.cat([W, H]).tolist()]
    with style.figure(7.4, 3.8) as drawing:
        ax = drawing.subplots()
        places = _columns(graph, (0.0, 1.0))
        colours = [_DARK if there else _NEW for there in drawn]
        _graph(ax, graph, places, labels, weights=0.17, colours=colours)
        _heads(ax, {0.0: "rows of W", 0.5: "V on the edges", 1.0: "rows of H"})
    missing = [edge for edge, there in zip(_edges(graph), drawn, strict=True) if not there]
    return {"edges": _edges(graph), "not in the paper's figure": missing}, drawing


def derivation_figure() -> tuple[dict[str, Any], Any]:
    """Figure 3: from the outer products of eq. 6 to the augmented line digraph, in four steps."""
    w, h = W[:3], H[:2]
    steps = ("i) König digraphs", "ii) glued together", "iii) line digraph", "iv) features united")
    numbers: dict[str, Any] = {"W": w.tolist(), "H": h.tolist(), "paths": {}}
    with style.figure(12.0, 5.2) as drawing:
        axes = drawing.subplots(2, 4)
        for c, row in enumerate(axes):
            a, b = w[:, c : c + 1], h[:, c : c + 1]
            glued = concatenation(a, b)
            line = line_digraph(glued)
            _two_koenig(row[0], a, b, c)
            places = _columns(glued, (0.0, 0.5, 1.0))
            names = [*_named("i", 3), f"c={c + 1}", *_named("j", 2)]
            _graph(row[1], glued, places, names, weights=0.5)
            assert line.features is not None
            values = [f"{x:g}" for x in line.features[:, 0].tolist()]
            _graph(row[2], line, _columns(line, (0.0, 1.0)), values)
            numbers["paths"][f"c={c + 1}"] = edge_products(line).tolist()
            for ax, title in zip(row, steps, strict=False):
                ax.set_title(title if not c else "")
            row[0].text(-0.55, 0.5, f"c = {c + 1}", ha="center", va="center", fontsize=10)
        both = drawing.add_subplot(axes[0, 3].get_gridspec()[:, 3])
        for ax in axes[:, 3]:
            ax.remove()
        whole = augmented_line_digraph(w, h, w @ h.mT)
        labels = [f"({x:g}, {y:g})" for x, y in torch.cat([w, h]).tolist()]
        _graph(both, whole, _columns(whole, (0.0, 1.0)), labels, weights=0.3)
        both.set_title(steps[3])
        numbers["products"] = edge_products(whole).tolist()
    return numbers, drawing


def models_figure() -> tuple[dict[str, Any], Any]:
    """Figure 4: the general model, the learned initialization and the learned acceleration."""
    rows = {
        "a) general": ["x⁰, V", "network", "ADMM", "network", "ADMM", "…", "V ≈ WHᵀ"],
        "b) learned initialization (alg. 1)": [
            "NNDSVD",
            "N-Factormer\n+ ReLU",
            "x¹",
            "ADMM",
            "ADMM",
            "…",
            "V ≈ WHᵀ",
        ],
        "c) learned acceleration (alg. 2)": [
            "xᵗ",
            "ADMM",
            "[xᵗ, x̂ᵗ]",
            "N-Factormer\n+ ReLU",
            "xᵗ⁺¹",
            "t < nbrAcc:\nonce more",
            "then ADMM\nalone",
        ],
    }
    with style.figure(10.5, 3.9) as drawing:
        for ax, (title, boxes) in zip(drawing.subplots(3, 1), rows.items(), strict=True):
            _chain(ax, boxes)
            ax.set_title(title, loc="left")
    return {"models": {title: [b.replace("\n", " ") for b in bs] for title, bs in rows.items()}}, (
        drawing
    )


def _edges(graph: Digraph) -> list[tuple[int, int, float]]:
    """Place of the source, place of the target, weight; places counted from 1 on each side."""
    place = graph.place.tolist()
    return [(place[i] + 1, place[j] + 1, weight) for i, j, weight in graph.edge_list()]


def _named(word: str, count: int) -> list[str]:
    return [f"{word} {k + 1}" if len(word) > 1 else f"{word}={k + 1}" for k in range(count)]


def _columns(graph: Digraph, across: Sequence[float]) -> dict[int, tuple[float, float]]:
    """Places: one column for each side that the graph has, its nodes from top to bottom."""
    sides = [side for side in Side if len(graph.on(side))]
    places = {}
    for side, x in zip(sides, across, strict=True):
        nodes = graph.on(side).tolist()
        for k, node in enumerate(nodes):
            places[node] = (x, 1 - (k + 0.5) / len(nodes))
    return places


def _graph(
    ax: Any,
    graph: Digraph,
    places: Places,
    labels: Sequence[str],
    *,
    weights: float = 0.0,
    colours: Sequence[str] | None = None,
) -> None:
    """`weights`: how far along an edge its weight stands; 0: nowhere."""
    edges = graph.edge_list()
    for k, (i, j, weight) in enumerate(edges):
        colour = colours[k] if colours else _DARK
        arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.0}
        arrow |= {"shrinkA": 8, "shrinkB": 8 + 2.4 * len(labels[j])}
        ax.annotate("", places[j], places[i], arrowprops=arrow)
        if weights:
            _weight(ax, places[i], places[j], weights, f"{weight:g}", colour)
    sides = graph.side.tolist()
    for node, (x, y) in places.items():
        box = {"boxstyle": "round,pad=0.35", "facecolor": _FILL[Side(sides[node])]}
        ax.text(x, y, labels[node], ha="center", va="center", fontsize=9, bbox=box)
    ax.set(xlim=(-0.2, 1.2), ylim=(-0.05, 1.05))
    ax.set_axis_off()


def _weight(
    ax: Any, a: tuple[float, float], b: tuple[float, float], t: float, text: str, colour: str
) -> None:
    x, y = a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])
    box = {"boxstyle": "square,pad=0.08", "facecolor": "white", "edgecolor": "none"}
    ax.text(x, y, text, ha="center", va="center", fontsize=7.5, color=colour, bbox=box)


def _two_koenig(ax: Any, a: Tensor, b: Tensor, c: int) -> None:
    """G(w) and G(hᵀ) beside each other."""
    left, right = koenig(a), koenig(b.mT)
    first = _columns(left, (0.0, 0.38))
    second = _columns(right, (0.62, 1.0))
    both = Digraph(
        torch.cat([left.side, right.side]),
        torch.cat([left.edges, right.edges + left.n_nodes], dim=1),
        torch.cat([left.weight, right.weight]),
    )
    places = first | {k + left.n_nodes: place for k, place in second.items()}
    names = [*_named("i", len(a)), f"c={c + 1}", f"c={c + 1}", *_named("j", len(b))]
    _graph(ax, both, places, names, weights=0.5)


def _matrix(ax: Any, V: Tensor, name: str) -> None:
    m, n = V.shape
    for i in range(m):
        for j in range(n):
            ax.text(j, m - 1 - i, f"{V[i, j]:g}", ha="center", va="center", fontsize=12)
    left = f"{name} ="
    ax.text(-1.1, (m - 1) / 2, left, ha="center", va="center", fontsize=12)
    for x, way in ((-0.5, 1), (n - 0.5, -1)):
        xs = [x + 0.15 * way, x, x, x + 0.15 * way]
        ax.plot(xs, [-0.5, -0.5, m - 0.5, m - 0.5], color="black", linewidth=1.2)
    ax.set(xlim=(-1.6, n), ylim=(-1, m), aspect="equal")
    ax.set_axis_off()


def _heads(ax: Any, words: Mapping[float, str]) -> None:
    for x, word in words.items():
        ax.text(x, 1.08, word, ha="center", va="bottom", fontsize=10)


def _chain(ax: Any, boxes: Sequence[str]) -> None:
    """Boxes from left to right; networks and solvers have their own colours."""
    for k, text in enumerate(boxes):
        learned = "network" in text or "Factormer" in text
        solver = text.startswith(("ADMM", "then ADMM"))
        fill = _COMPONENT if learned else _ROW if solver else "white"
        box = {"boxstyle": "round,pad=0.45", "facecolor": fill}
        ax.text(k, 0, text, ha="center", va="center", fontsize=9, bbox=box)
        if k:
            arrow = {"arrowstyle": "-|>", "color": _DARK, "shrinkA": 34, "shrinkB": 34}
            ax.annotate("", (k, 0), (k - 1, 0), arrowprops=arrow)
    ax.set(xlim=(-0.6, len(boxes) - 0.4), ylim=(-1, 1))
    ax.set_axis_off()
