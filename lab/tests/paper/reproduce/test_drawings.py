"""Figures 1 to 4 show the graphs themselves."""

import torch

from factormer_lab.paper.reproduce.drawings import (
    H,
    W,
    derivation_figure,
    example_figure,
    koenig_figure,
    models_figure,
)


def test_koenig_digraph_has_an_edge_for_every_entry_but_zeros():
    numbers, _ = koenig_figure()
    V = torch.tensor(numbers["V"])
    assert {(i, j): w for i, j, w in numbers["edges"]} == {
        (i + 1, j + 1): V[i, j].item() for i, j in V.nonzero().tolist()
    }


def test_example_has_all_edges_and_tells_which_the_paper_lacks():
    numbers, _ = example_figure()
    V = W @ H.mT
    assert {(i, j): w for i, j, w in numbers["edges"]} == {
        (i + 1, j + 1): V[i, j].item() for i in range(4) for j in range(3)
    }
    lacking = [(i, j) for i, j, _ in numbers["not in the paper's figure"]]
    assert lacking == [(1, 3), (2, 1), (2, 2), (2, 3)]


def test_derivation_ends_at_the_product():
    numbers, _ = derivation_figure()
    w, h = torch.tensor(numbers["W"]), torch.tensor(numbers["H"])
    assert numbers["products"] == (w @ h.mT).flatten().tolist()
    assert sum(numbers["paths"]["c=2"]) == torch.outer(w[:, 1], h[:, 1]).sum()
    assert len(numbers["paths"]["c=1"]) == 4  # a zero of w is no node: three rows, two left


def test_models_are_the_papers_two_and_the_general_one():
    numbers, drawing = models_figure()
    assert len(numbers["models"]) == len(drawing.axes) == 3
