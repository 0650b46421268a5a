"""The graphs of sections 3.1 and 4: the worked example, then laws on small integer matrices.

Integers in float64 multiply and add exactly, so every comparison here is for equality.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from factormer_lab.paper.graphs import (
    Digraph,
    Side,
    augmented_line_digraph,
    concatenation,
    edge_products,
    implicit_edge_features,
    koenig,
    line_digraph,
    path_weights,
    residuals,
    transpose,
)


def matrix(rows: list[list[int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


W = matrix([[13, 7], [0, 2], [4, 9], [11, 5]])
H = matrix([[6, 12], [8, 10], [3, 1]])
V = matrix([[162, 174, 46], [24, 20, 2], [132, 122, 21], [126, 138, 38]])  # (5)


@st.composite
def factorizations(draw: st.DrawFn, smallest: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Draw W, H and an unrelated V, of entries `smallest` … 9."""
    m, n, r = (draw(st.integers(1, size)) for size in (5, 4, 3))

    def entries(rows: int, columns: int) -> Tensor:
        row = st.lists(st.integers(smallest, 9), min_size=columns, max_size=columns)
        return matrix(draw(st.lists(row, min_size=rows, max_size=rows)))

    return entries(m, r), entries(n, r), entries(m, n)


def named_edges(graph: Digraph) -> set[tuple[tuple[int, int], tuple[int, int], float]]:
    """The edges by what their ends stand for, whatever the numbers of the nodes."""
    names = list(zip(graph.side.tolist(), graph.place.tolist(), strict=True))
    return {(names[s], names[t], weight) for s, t, weight in graph.edge_list()}


# The worked example (eq. 5; figures 2 and 3)


def test_koenig_digraph_of_the_example_omits_the_zero():
    graph = koenig(W)
    assert graph.n_nodes == 4 + 2
    assert graph.edge_list() == [
        (0, 4, 13), (0, 5, 7), (1, 5, 2), (2, 4, 4), (2, 5, 9), (3, 4, 11), (3, 5, 5)
    ]  # fmt: skip


def test_concatenation_of_the_example_has_the_product_as_path_weights():
    graph = concatenation(W, H)
    assert graph.side.bincount().tolist() == [4, 2, 3]
    assert graph.edges.shape[1] == 7 + 6
    assert torch.equal(path_weights(graph), V)


def test_line_digraph_of_the_first_outer_product_has_no_node_for_the_zero():
    glued = concatenation(W[:, [0]], H[:, [0]])
    graph = line_digraph(glued)
    assert graph.side.tolist() == [Side.ROW] * 3 + [Side.COLUMN] * 3
    assert graph.features is not None
    assert graph.features.squeeze(1).tolist() == [13, 4, 11, 6, 8, 3]
    assert glued.edges[0, :3].tolist() == [0, 2, 3]  # the rows that remain
    assert edge_products(graph).reshape(3, 3).tolist() == [
        [13 * 6, 13 * 8, 13 * 3], [4 * 6, 4 * 8, 4 * 3], [11 * 6, 11 * 8, 11 * 3]
    ]  # fmt: skip


def test_line_digraph_of_the_second_outer_product_is_complete():
    graph = line_digraph(concatenation(W[:, [1]], H[:, [1]]))
    assert graph.side.bincount().tolist() == [4, 0, 3]
    assert torch.equal(edge_products(graph).reshape(4, 3), torch.outer(W[:, 1], H[:, 1]))


def test_augmented_line_digraph_of_the_example_fits_exactly():
    graph = augmented_line_digraph(W, H, V)
    assert graph.features is not None
    assert graph.features.tolist() == [
        [13, 7], [0, 2], [4, 9], [11, 5], [6, 12], [8, 10], [3, 1]
    ]  # fmt: skip
    assert graph.edge_list()[:4] == [(0, 4, 162), (0, 5, 174), (0, 6, 46), (1, 4, 24)]
    assert torch.equal(edge_products(graph), graph.weight)
    assert implicit_edge_features(graph)[0].tolist() == [13 * 6, 7 * 12, 162]
    assert not residuals(graph).any()


# Laws


@given(factorizations())
def test_koenig_digraph_has_the_matrix_as_path_weights(case: tuple[Tensor, Tensor, Tensor]):
    _, _, V = case
    assert koenig(V).edges.shape[1] == V.count_nonzero()
    assert torch.equal(path_weights(koenig(V)), V)


@given(factorizations())
def test_path_weights_of_the_concatenation_are_the_product(case: tuple[Tensor, Tensor, Tensor]):
    W, H, _ = case
    assert torch.equal(path_weights(concatenation(W, H)), W @ H.mT)


def test_path_weights_follow_paths_of_distinct_nodes_only():
    side = torch.tensor([Side.ROW, Side.COMPONENT, Side.COLUMN])
    edges = torch.tensor([[0, 1, 1, 0], [1, 0, 2, 2]])  # the cycle 0 → 1 → 0 is no part of a path
    graph = Digraph(side, edges, torch.tensor([2.0, 7.0, 3.0, 1.0]))
    assert path_weights(graph).tolist() == [[2 * 3 + 1]]


def test_path_weights_are_differentiable():
    W = torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    H = torch.tensor([[3.0, 4.0], [5.0, 6.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda W, H: path_weights(concatenation(W, H)), (W, H))


@given(factorizations())
def test_product_is_the_sum_over_the_line_digraphs(case: tuple[Tensor, Tensor, Tensor]):
    W, H, _ = case
    total = torch.zeros_like(W @ H.mT)
    for w, h in zip(W.split(1, dim=1), H.split(1, dim=1), strict=True):
        glued = concatenation(w, h)
        graph = line_digraph(glued)
        first, second = graph.edges
        i, j = glued.place[glued.edges[0, first]], glued.place[glued.edges[1, second]]
        total[i, j] += edge_products(graph)
    assert torch.equal(total, W @ H.mT)


@given(factorizations())
def test_product_and_residual_lie_on_the_augmented_edges(case: tuple[Tensor, Tensor, Tensor]):
    W, H, V = case
    graph = augmented_line_digraph(W, H, V)
    assert torch.equal(edge_products(graph).reshape(V.shape), W @ H.mT)
    assert torch.equal(residuals(graph).reshape(V.shape), W @ H.mT - V)


@given(factorizations())
def test_augmented_line_digraph_is_complete_whatever_is_zero(case: tuple[Tensor, Tensor, Tensor]):
    W, H, V = case
    full, empty = augmented_line_digraph(W, H, V), augmented_line_digraph(0 * W, 0 * H, 0 * V)
    assert len(named_edges(full)) == V.numel()
    assert torch.equal(full.edges, empty.edges)


@settings(max_examples=25)
@given(factorizations(smallest=1))
def test_augmented_line_digraph_unites_the_line_digraphs(case: tuple[Tensor, Tensor, Tensor]):
    W, H, V = case
    augmented = augmented_line_digraph(W, H, V)
    lines = [
        line_digraph(concatenation(w, h))
        for w, h in zip(W.split(1, dim=1), H.split(1, dim=1), strict=True)
    ]
    features = [line.features for line in lines if line.features is not None]
    assert all(torch.equal(line.side, augmented.side) for line in lines)
    assert all(torch.equal(line.edges, augmented.edges) for line in lines)
    assert augmented.features is not None
    assert torch.equal(torch.cat(features, dim=1), augmented.features)


@settings(max_examples=25)
@given(factorizations())
def test_transposing_reverses_the_edges(case: tuple[Tensor, Tensor, Tensor]):
    W, H, V = case
    assert named_edges(transpose(koenig(V))) == named_edges(koenig(V.mT))
    assert named_edges(transpose(concatenation(W, H))) == named_edges(concatenation(H, W))
    assert torch.equal(path_weights(transpose(concatenation(W, H))), H @ W.mT)
    swapped, direct = augmented_line_digraph(H, W, V.mT), augmented_line_digraph(W, H, V)
    assert named_edges(transpose(direct)) == named_edges(swapped)
    assert torch.equal(edge_products(transpose(direct)), edge_products(direct))


@given(factorizations())
def test_transposing_twice_changes_nothing(case: tuple[Tensor, Tensor, Tensor]):
    graph = augmented_line_digraph(*case)
    again = transpose(transpose(graph))
    assert torch.equal(again.side, graph.side)
    assert torch.equal(again.edges, graph.edges)


@settings(max_examples=25)
@given(factorizations(), st.data())
def test_permuting_the_matrices_permutes_the_nodes(
    case: tuple[Tensor, Tensor, Tensor], data: st.DataObject
):
    W, H, V = case
    p, q, c = (data.draw(st.permutations(range(size))) for size in (*V.shape, W.shape[1]))
    old = {Side.ROW: p, Side.COMPONENT: c, Side.COLUMN: q}

    def renamed(graph: Digraph) -> set[tuple[tuple[int, int], tuple[int, int], float]]:
        return {
            ((s, old[Side(s)][i]), (t, old[Side(t)][j]), weight)
            for (s, i), (t, j), weight in named_edges(graph)
        }

    W_p, H_q, V_pq = W[p][:, c], H[q][:, c], V[p][:, q]
    assert renamed(koenig(V_pq)) == named_edges(koenig(V))
    assert renamed(concatenation(W_p, H_q)) == named_edges(concatenation(W, H))
    augmented, permuted = augmented_line_digraph(W, H, V), augmented_line_digraph(W_p, H_q, V_pq)
    assert renamed(permuted) == named_edges(augmented)
    assert torch.equal(
        residuals(permuted).reshape(V.shape), residuals(augmented).reshape(V.shape)[p][:, q]
    )


# Errors and exports


def test_mismatched_matrices_are_refused():
    # The tests' shape checker (a TypeError) comes before the sentence that users see.
    with pytest.raises((ValueError, TypeError)):
        concatenation(W, H[:, :1])
    with pytest.raises((ValueError, TypeError)):
        augmented_line_digraph(W, H, V.mT)


def test_graph_without_features_has_no_edge_products():
    with pytest.raises(ValueError, match="no features"):
        edge_products(koenig(V))


def test_pyg_graph_passes_messages_along_the_edges():
    from torch_geometric.nn import MessagePassing

    class Gradient(MessagePassing):
        """Σᵢ Rᵢⱼ Wᵢ, the gradient of the loss by Hⱼ, as messages from the rows of W."""

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x, edge_attr=edge_attr)

        def message(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor
        ) -> Tensor:
            return ((x_i * x_j).sum(dim=1, keepdim=True) - edge_attr) * x_j

    def gradient(graph: Digraph) -> Tensor:
        data = graph.to_pyg()
        assert data.validate()
        return Gradient(aggr="sum")(data.x, data.edge_index, data.edge_attr)

    target = V.flip(0)
    graph, residual = augmented_line_digraph(W, H, target), W @ H.mT - target
    assert torch.equal(gradient(graph)[4:], residual.mT @ W)
    assert torch.equal(gradient(transpose(graph))[:4], residual @ H)


def test_pyg_graph_without_features_keeps_its_isolated_nodes():
    data = koenig(torch.zeros(2, 3)).to_pyg()
    assert data.x is None
    assert data.num_nodes == 5
    assert data.num_edges == 0
