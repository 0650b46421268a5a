"""The paper's network, transcribed slowly and literally, to compare the fast code with.

The network is message passing over the augmented line digraph, as the paper has it: every implicit
edge feature is built, every equation is one line.
Shapes: m rows, n columns, r rank, d width, h heads, k = d/h, e = mn edges, s edge scalars.
"""

import math

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from factormer.data.factors import Factors
from factormer.nn.factormer import FactormerLayer, NFactormer
from factormer.nn.refining import Network, RefiningFactormer
from factormer_lab.paper.graphs import Digraph, augmented_line_digraph, residuals, transpose

# The Factormer (eqs. 9–15)


class LiteralFactormer(MessagePassing):
    """The layer of eqs. 9–15 along the edges of a graph, with the weights of a given layer.

    PyTorch Geometric calls the source of an edge `x_j` and its target `x_i`; the paper has them
    the other way about, and so the names change at the head of `message`.
    """

    def __init__(self, layer: FactormerLayer, *, scale_by_width: bool = False):
        super().__init__(aggr="sum", flow="source_to_target")  # the sum of (14)
        self.layer = layer
        self.scale_by_width = scale_by_width

    def forward(
        self, graph: Digraph, more: Tensor | None = None, carried: Tensor | None = None
    ) -> Tensor:
        """New features of every node; only those of nodes that receive messages mean anything."""
        m, x, layer = self.messages(graph, more, carried), _features(graph), self.layer
        return layer.norm_output(x + layer.feed_forward(layer.norm_message(x + m)))  # (15)

    def messages(
        self, graph: Digraph, more: Tensor | None = None, carried: Tensor | None = None
    ) -> Tensor:
        """The messages mⱼ of eqs. 9–14 to every node.

        Beyond the paper, `more` (e, s − 1) are edge scalars beside the weight of the edge, and
        `carried` (nodes, c) are vectors of the nodes that an edge value holds times each scalar.
        """
        x, scalars = _features(graph), graph.weight.unsqueeze(1)
        scalars = scalars if more is None else torch.cat([scalars, more], dim=1)
        carried = x[:, :0] if carried is None else carried
        return self.propagate(graph.edges, x=x, carried=carried, scalars=scalars)  # (14)

    def message(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x_i: Tensor, x_j: Tensor, carried_j: Tensor, scalars: Tensor, index: Tensor
    ) -> Tensor:
        target, source, weights = x_i, x_j, self.layer.attention
        d, h = source.shape[1], weights.heads
        implicit = torch.cat([source * target, scalars], dim=1)  # (9), (e, d + s)
        brought = [part for E in scalars.split(1, dim=1) for part in (E, E * carried_j)]
        implicit_value = torch.cat([source * target, *brought], dim=1)  # (9), where c = 0
        q = weights.query(target).view(-1, h, d // h)  # (11)
        k_node = weights.node_key(source).view(-1, h, d // h)  # (11)
        v_node = weights.node_value(source).view(-1, h, d // h)  # (11)
        k_edge = weights.edge_key(implicit).view(-1, h, d // h)  # (12)
        v_edge = weights.edge_value(implicit_value).view(-1, h, d // h)  # (12)
        temperature = math.sqrt(d if self.scale_by_width else d / h)
        scores = (q * (k_node + k_edge)).sum(dim=2) / temperature  # (e, h)
        alpha = softmax(scores, index)  # (13), over the neighbours of each target
        return (alpha.unsqueeze(2) * (v_node + v_edge)).flatten(1)  # a term of (14)


def _features(graph: Digraph) -> Tensor:
    assert graph.features is not None
    return graph.features


# The networks (eq. 16)


def network(model: Network, x: Factors, V: Tensor) -> Factors:
    """What a given network computes, by message passing."""
    return n_factormer(model, x, V) if isinstance(model, NFactormer) else refining(model, x, V)


def n_factormer(model: NFactormer, x: Factors, V: Tensor) -> Factors:
    """The network of eq. 16: an H-update along the edges, a W-update against them, N times."""
    W, H = model.embed(x.W), model.embed(x.H)
    for update_H, update_W in _literal_pairs(model):
        H = update_H(augmented_line_digraph(W, H, V))[len(W) :]
        W = update_W(transpose(augmented_line_digraph(W, H, V)))[: len(W)]
    return Factors(model.extract(W).relu(), model.extract(H).relu())


def refining(model: RefiningFactormer, x: Factors, V: Tensor) -> Factors:
    """The same, with the residual of eq. 10 on the edges and a correction after every layer."""
    r = model.config.rank
    point = Factors(x.W[:, -r:], x.H[:, -r:])
    W, H = model.embed(x.W), model.embed(x.H)
    for update_H, update_W in _literal_pairs(model):
        now = augmented_line_digraph(*point, V)
        error = residuals(now).square().mean().sqrt()
        more = (residuals(now) / error).unsqueeze(1)  # (10)
        H = update_H(augmented_line_digraph(W, H, V), more, now.features)[len(W) :]
        point = point._replace(H=(point.H + error * model.extract(H)).relu())

        now = augmented_line_digraph(*point, V)
        error = residuals(now).square().mean().sqrt()
        more = (residuals(now) / error).unsqueeze(1)  # (10)
        W = update_W(transpose(augmented_line_digraph(W, H, V)), more, now.features)[: len(W)]
        point = point._replace(W=(point.W + error * model.extract(W)).relu())
    return point


def _literal_pairs(model: Network) -> list[tuple[LiteralFactormer, LiteralFactormer]]:
    config = model.config
    layers = [layer for layer in model.layers if isinstance(layer, FactormerLayer)]
    assert len(layers) == (1 if config.shared else 2) * config.n_pairs
    literal = [LiteralFactormer(x, scale_by_width=config.scale_by_width) for x in layers]
    step = len(layers) // config.n_pairs
    return [(literal[step * k], literal[step * k + step - 1]) for k in range(config.n_pairs)]
