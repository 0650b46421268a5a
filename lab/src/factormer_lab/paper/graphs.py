"""The graphs behind the factorization, as the paper draws them (sections 3.1 and 4).

A matrix is its König digraph; a product W Hᵀ is two of them glued together; the line digraph turns
the paths of the glued graph into edges; and the augmented line digraph carries V on those edges, so
that a network that passes messages along them sees the whole problem. The network itself never
builds these graphs (it works on W, H and V directly): they are for reading, drawing and export.

Sizes: m rows, n columns, r components, e edges, p features of a node, q features of an edge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from torch_geometric.data import Data


class Side(IntEnum):
    """The meaning of a node; paths lead from ROW to COLUMN, and `transpose` exchanges the two."""

    ROW = 0
    COMPONENT = 1
    COLUMN = 2


@dataclass(frozen=True, eq=False)
class Digraph:
    """A directed graph with a weight on each edge and, where it has them, features on its nodes."""

    side: Int[Tensor, " nodes"]  # the `Side` of each node
    edges: Int[Tensor, "2 e"]  # source and target node of each edge
    weight: Float[Tensor, " e"]
    features: Float[Tensor, "nodes p"] | None = None

    @property
    def n_nodes(self) -> int:
        """The number of nodes, isolated ones included."""
        return len(self.side)

    @property
    def place(self) -> Int[Tensor, " nodes"]:
        """The index of each node among those of its side: the i, c or j it stands for."""
        place = torch.empty_like(self.side)
        for side in Side:
            nodes = self.on(side)
            place[nodes] = torch.arange(len(nodes), device=nodes.device)
        return place

    def on(self, side: Side) -> Int[Tensor, " k"]:
        """Return the nodes of one side, in order."""
        return (self.side == side).nonzero().squeeze(1)

    def edge_list(self) -> list[tuple[int, int, float]]:
        """Return the edges as plain (source, target, weight) tuples, for any graph library."""
        sources, targets = self.edges.tolist()
        return list(zip(sources, targets, self.weight.tolist(), strict=True))

    def to_pyg(self) -> Data:
        """Return the graph as a `torch_geometric.data.Data`.

        `x` holds the node features, `edge_index` the edges, `edge_attr` the weights as (e, 1), and
        `side` tells rows from columns. Rows of W and of H have the same r features, so even the
        augmented line digraph is a plain `Data`: messages flow from W to H, which is the H-update;
        the W-update is `transpose(graph).to_pyg()`.
        """
        from torch_geometric.data import Data

        return Data(
            x=self.features,
            edge_index=self.edges,
            edge_attr=self.weight.unsqueeze(1),
            side=self.side,
            num_nodes=self.n_nodes,
        )


def koenig(V: Float[Tensor, "m n"]) -> Digraph:
    """Return the König digraph G(V): an edge of weight Vᵢⱼ from row i to column j, unless Vᵢⱼ = 0.

    Row i is node i and column j is node m + j (section 3.1; Doob, 1984).
    """
    m, n = V.shape
    i, j = V.nonzero(as_tuple=True)
    return Digraph(_sides(m, 0, n).to(V.device), torch.stack([i, m + j]), V[i, j])


def transpose(graph: Digraph) -> Digraph:
    """Reverse every edge: G(V) becomes G(Vᵀ), the graph of (W, H, V) that of (H, W, Vᵀ) (eq. 7).

    Nodes keep their numbers; rows and columns exchange sides.
    """
    return replace(graph, side=Side.COLUMN - graph.side, edges=graph.edges.flip(0))


def concatenation(W: Float[Tensor, "m r"], H: Float[Tensor, "n r"]) -> Digraph:
    """Return G(W) * G(Hᵀ): the r columns of G(W) are the r rows of G(Hᵀ) (section 4).

    Row i is node i, component c node m + c, column j node m + r + j. Every path from i to j passes
    through one component c and weighs Wᵢ꜀ Hⱼ꜀, so that `path_weights` is W Hᵀ.
    """
    (m, r), n = W.shape, len(H)
    _require_same_rank(W, H)
    left, right = koenig(W), koenig(H.mT)
    return Digraph(
        _sides(m, r, n).to(W.device),
        torch.cat([left.edges, m + right.edges], dim=1),  # row c of Hᵀ lands on column c of W
        torch.cat([left.weight, right.weight]),
    )


def path_weights(graph: Digraph) -> Float[Tensor, "m n"]:
    """Sum, from each row node to each column node, the weights of all paths between them.

    A path visits distinct nodes and weighs the product of its edges (section 3.1). The paths are
    followed edge by edge, all at once: this is the definition, and costs as much memory as there
    are paths (mnr for a concatenation). For G(V) the sum is V; for G(W) * G(Hᵀ) it is W Hᵀ.
    """
    source, target = graph.edges
    place, rows = graph.place, graph.on(Side.ROW)
    total = graph.weight.new_zeros(len(rows), len(graph.on(Side.COLUMN)))
    visited, product = rows.unsqueeze(1), graph.weight.new_ones(len(rows))
    while len(visited):
        path, edge = _matches(visited[:, -1], source)
        new = (visited[path] != target[edge].unsqueeze(1)).all(dim=1)
        path, edge = path[new], edge[new]
        visited = torch.cat([visited[path], target[edge].unsqueeze(1)], dim=1)  # (paths, length)
        product = product[path] * graph.weight[edge]
        arrived = graph.side[target[edge]] == Side.COLUMN
        i, j = place[visited[arrived, 0]], place[visited[arrived, -1]]
        total = total.index_put((i, j), product[arrived], accumulate=True)
    return total


def line_digraph(graph: Digraph) -> Digraph:
    """Return the line digraph L(G): a node for each edge of G, an edge for each two in succession.

    Node k is the k-th edge of G, and its one feature is that edge's weight; the edges of L(G) are
    unweighted (all ones). Of an outer product w hᵀ, L(G(w) * G(hᵀ)) has the m entries of w as rows
    and the n entries of h as columns; its edges are the paths of G, and `edge_products` gives their
    weights (section 4; Harary, 1960). A zero of w or h is no edge of G and so no node of L(G):
    `graph.edges` says which entries remain.
    """
    source, target = graph.edges
    first, second = _matches(target, source)
    outward = graph.side[source] == Side.COMPONENT  # the edge c → j is an entry of H: a column
    return Digraph(
        side=torch.where(outward, graph.side[target], graph.side[source]),
        edges=torch.stack([first, second]),
        weight=graph.weight.new_ones(len(first)),
        features=graph.weight.unsqueeze(1),
    )


def augmented_line_digraph(
    W: Float[Tensor, "m r"], H: Float[Tensor, "n r"], V: Float[Tensor, "m n"]
) -> Digraph:
    """Return the graph of the whole problem: rows of W → rows of H, V on the edges (section 4).

    It unites the line digraphs of the r outer products w꜀h꜀ᵀ (eq. 6): node i has the features Wᵢ,
    node m + j has Hⱼ, and edge (i, j) weighs Vᵢⱼ. It is complete, all mn edges in row-major order,
    whichever entries are zero: a zero of V is to be fitted like any other entry.
    """
    (m, n), device = V.shape, V.device
    _require_same_rank(W, H)
    if (m, n) != (len(W), len(H)):
        raise ValueError(f"V is {m}×{n}, but W has {len(W)} rows and H has {len(H)}")
    i, j = torch.arange(m, device=device), torch.arange(n, device=device)
    edges = torch.stack([i.repeat_interleave(n), m + j.repeat(m)])
    return Digraph(_sides(m, 0, n).to(device), edges, V.flatten(), torch.cat([W, H]))


def edge_products(graph: Digraph) -> Float[Tensor, " e"]:
    """Return Σ xᵢ ⊙ xⱼ on each edge: (W Hᵀ)ᵢⱼ on the augmented line digraph (section 4)."""
    return _hadamard(graph).sum(dim=1)


def implicit_edge_features(graph: Digraph) -> Float[Tensor, "e q"]:
    """Return the implicit features ẽᵢⱼ = [xᵢ ⊙ xⱼ, Vᵢⱼ] of each edge, q = p + 1 (eq. 9)."""
    return torch.cat([_hadamard(graph), graph.weight.unsqueeze(1)], dim=1)  # (9)


def residuals(graph: Digraph) -> Float[Tensor, " e"]:
    """Return the residual (W Hᵀ − V)ᵢⱼ on each edge, a linear function of ẽᵢⱼ (eq. 10)."""
    implicit = implicit_edge_features(graph)
    signs = torch.ones_like(implicit[0])
    signs[-1] = -1
    return implicit @ signs  # (10)


def _hadamard(graph: Digraph) -> Float[Tensor, "e p"]:
    if graph.features is None:
        raise ValueError("the nodes of this graph have no features; a line digraph's do")
    source, target = graph.edges
    return graph.features[source] * graph.features[target]


def _matches(
    ends: Int[Tensor, " a"], starts: Int[Tensor, " b"]
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """Return all pairs of positions at which an end is a start."""
    first, second = (ends.unsqueeze(1) == starts).nonzero(as_tuple=True)
    return first, second


def _sides(rows: int, components: int, columns: int) -> Int[Tensor, " nodes"]:
    """Return the sides of nodes numbered rows first, then components, then columns."""
    return torch.tensor(list(Side)).repeat_interleave(torch.tensor([rows, components, columns]))


def _require_same_rank(W: Float[Tensor, "m r"], H: Float[Tensor, "n s"]) -> None:
    if W.shape[1] != H.shape[1]:
        raise ValueError(
            f"W has {W.shape[1]} columns and H has {H.shape[1]}: both need one for each component"
        )
