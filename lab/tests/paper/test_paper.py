"""docs/paper.md is complete and names what exists; and what its readings of the paper say holds."""

import ast
import math
import re
from itertools import islice
from pathlib import Path

import pytest
import torch
from tests.networks import random_layer, random_network, small_config
from tests.steps import steps
from torch import Tensor, nn

from factormer.accelerate.base import Accelerated, Descent, Identity
from factormer.accelerate.learned import LearnedInit
from factormer.data import Dense
from factormer.nn.factormer import ModelConfig, NFactormer
from factormer.solvers.ao_admm import AOADMM
from factormer_lab.paper.graphs import Digraph, augmented_line_digraph
from factormer_lab.train.synthetic import SizeClass, sample, validation_set
from lab.tests.reference import LiteralFactormer

DOCS = Path(__file__).parents[3] / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "generated" not in page.parts]
MAP = (DOCS / "paper.md").read_text(encoding="utf-8")
NAMED = re.compile(r"\[`([^`:]+)::([^`]+)`\]\(([^)]+)\)")  # [`file::name`](path)
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")

# The map


def table(heading: str) -> dict[str, str]:
    """The rows of the table below a heading: first cell, and the whole row."""
    section = MAP.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return {row.split("|")[1].strip(): row for row in rows}


def defines(body: list[ast.stmt], name: str) -> bool:
    """Whether statements define a dotted name: a function, class, constant, field or method."""
    first, _, rest = name.partition(".")
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == first:
            return not rest or defines(node.body, rest)
        if isinstance(node, ast.FunctionDef) and node.name == first:
            return not rest
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if any(isinstance(target, ast.Name) and target.id == first for target in targets):
            return not rest
    return False


def test_every_code_and_test_named_in_the_map_exists():
    named, wrong = NAMED.findall(MAP), []
    assert len(named) > 100
    for file, name, target in named:
        path = (DOCS / target).resolve()
        if not path.is_file() or not str(path).endswith(f"/{file}"):
            wrong.append(f"{file} is not the file {target}")
        elif not defines(ast.parse(path.read_text(encoding="utf-8")).body, name):
            wrong.append(f"{target} defines no {name}")
        elif path.name.startswith("test_") != name.startswith("test_"):
            wrong.append(f"{name} of {target} is no test")
    assert not wrong, "\n".join(wrong)


def test_test_names_are_links_that_are_checked():
    assert set(re.findall(r"\btest_\w+(?!\w|\.py)", MAP)) == {
        name for _, name, _ in NAMED.findall(MAP) if name.startswith("test_")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_files_lead_somewhere(page):
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    files = [target for target in targets if "://" not in target]
    assert not [target for target in files if not (page.parent / target).exists()]


def test_every_equation_and_algorithm_has_code_and_test():
    rows = table("Equations and algorithms")
    covered = set()
    for first, row in rows.items():
        names = [name for _, name, _ in NAMED.findall(row)]
        assert any(name.startswith("test_") for name in names), row
        assert any(not name.startswith("test_") for name in names), row
        if match := re.fullmatch(r"(\d+)(?:–(\d+))?", first):
            low, high = int(match[1]), int(match[2] or match[1])
            covered |= set(range(low, high + 1))
    assert covered == set(range(1, 24))
    assert {"Alg. 1", "Alg. 2", "Alg. 3", "App. A", "App. C"} <= rows.keys()


@pytest.mark.parametrize("heading", ["Readings of the paper", "Departures of our own"])
def test_every_deviation_names_its_test_or_says_why_there_is_none(heading):
    rows = table(heading)
    assert all("::test_" in row or "Not testable: " in row for row in rows.values())
    if heading == "Readings of the paper":
        assert list(rows) == [str(k) for k in range(1, 23)]


# The network


@pytest.fixture
def case(rng) -> tuple[Tensor, Tensor, Tensor]:
    """Embedded rows of W and of H, and a matrix a third of whose entries are zero."""
    W, H, V = (
        torch.randn(*s, dtype=torch.float64, generator=rng) for s in ((7, 8), (5, 8), (7, 5))
    )
    return W, H, torch.where(torch.arange(35).reshape(7, 5) % 3 == 0, 0, V)


def test_one_embedding_one_extraction_and_n_layers_serve_both_factors():
    config = ModelConfig()
    names = {name.split(".")[0] for name, _ in NFactormer(config).named_parameters()}
    assert names == {"embed", "layers", "extract"}
    assert len(NFactormer(config).layers) == config.n_pairs == 4  # sets of weights for 2N layers


def test_feed_forward_is_added_to_the_node_and_not_to_the_message(case):
    """Eq. 15; alg. 3 as printed would leave the message in place of the node."""
    W, H, V = case
    layer = random_layer(small_config(), last=True)
    for parameter in layer.feed_forward.parameters():
        nn.init.zeros_(parameter)
    torch.testing.assert_close(layer(W, H, [Dense(V.mT)]), H)
    assert not torch.allclose(layer.attention(W, H, [Dense(V.mT)]), H)


def test_zeros_of_v_send_messages_too(case):
    W, H, V = case
    layer = random_layer(small_config())
    folded, literal = layer.attention(W, H, [Dense(V.mT)]), LiteralFactormer(layer)
    full = augmented_line_digraph(W, H, V)
    kept = full.weight != 0
    sparse = Digraph(full.side, full.edges[:, kept], full.weight[kept], full.features)
    torch.testing.assert_close(folded, literal.messages(full)[7:])
    assert not torch.allclose(folded, literal.messages(sparse)[7:])


def test_bias_on_a_key_would_change_no_message(case, rng):
    layer, graph = random_layer(small_config()), augmented_line_digraph(*case)
    literal = LiteralFactormer(layer)
    expected = literal.messages(graph)
    for key in (layer.attention.node_key, layer.attention.edge_key):
        assert key.bias is None
        key.bias = nn.Parameter(torch.randn(8, dtype=torch.float64, generator=rng))
    torch.testing.assert_close(literal.messages(graph), expected)


# What is done unless told otherwise


def test_five_iterations_are_accelerated_and_guarded_by_descent():
    accelerated = Accelerated(AOADMM(), Identity())
    assert accelerated.n_accel == 5
    assert accelerated.safeguard == Descent()
    assert LearnedInit(random_network(small_config())).safeguard == Descent()


# The data


def test_noise_of_every_size_is_one_size_a_matrix_between_the_bounds():
    size = SizeClass(60, (40, 40), (40, 40))
    clean, noisy = (
        sample(size, 3, sigma, torch.Generator().manual_seed(0)).entries
        for sigma in (0.0, (0.01, 0.5))
    )
    clean = clean.masked_fill(noisy == 0, torch.nan)  # clipped
    sizes = (noisy - clean).square().nanmean(dim=(1, 2)).sqrt()
    assert 0.009 < sizes.min() < 0.02
    assert 0.3 < sizes.max() < 0.52
    uniform = math.log(0.5 / 0.01) / math.sqrt(12)  # the deviation of a uniform logarithm
    assert sizes.log().std().item() == pytest.approx(uniform, rel=0.2)


@pytest.mark.parametrize(("name", "expected"), [("small", 0.0096), ("large", 0.0115)])
def test_bar_of_the_learned_initialization_is_where_ao_admm_is_after_20_iterations(name, expected):
    problem, x0 = validation_set(name).to("cpu", torch.float32)
    state = next(islice(steps(problem, AOADMM(), x0), 20, None))
    assert problem.rmse(state.factors).median().item() == pytest.approx(expected, rel=0.05)
