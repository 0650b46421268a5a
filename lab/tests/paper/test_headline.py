"""The tables of the paper's headline, on a few small matrices."""

import json

import pytest
import torch
from tests.networks import random_network, small_config
from tests.steps import steps

from factormer.data import Dense
from factormer.nn.zoo import Card, save_model
from factormer.solvers.ao_admm import AOADMM
from factormer_lab.paper.headline import SAFEGUARDS, Ratio, Start, compare, fresh, main
from factormer_lab.train.synthetic import validation_set
from lab.tests.train.cases import shrink


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    shrink(monkeypatch.setattr)
    monkeypatch.setattr("factormer_lab.paper.headline.VALIDATION", shrunken_sizes())


def shrunken_sizes():
    """The sizes that `shrink` puts in place of the paper's."""
    from factormer_lab.train import synthetic

    return synthetic.VALIDATION


def entries(drawn):
    """The matrices of a stack, as a tensor."""
    V = drawn.problem.V
    assert isinstance(V, Dense)
    return V.entries


def test_fresh_matrices_are_fixed_and_of_no_validation_set():
    one, same = (fresh("small", 3, count=4, seed=5) for _ in range(2))
    assert torch.equal(entries(one), entries(same))
    known = entries(validation_set("small", 3))
    assert not torch.isclose(entries(one), known[:4]).all(dim=(1, 2)).any()


def test_start_of_ao_admm_is_its_median_error_and_the_network_is_compared_with_it():
    drawn = fresh("small", 3, count=4, seed=5)
    result = compare(random_network(small_config()), drawn, n_iter=21)
    assert isinstance(result, Start)
    errors = [
        drawn.problem.rmse(state.factors).quantile(0.5).item()
        for state, _ in zip(steps(drawn.problem, AOADMM(), drawn.x0), range(22), strict=False)
    ]
    assert result.plain == pytest.approx(errors, rel=1e-6)
    assert len(result.network) == 22
    assert not result.is_met


def test_acceleration_is_compared_matrix_by_matrix():
    drawn = fresh("small", 3, count=4, seed=5)
    result = compare(random_network(small_config(n_points=2)), drawn, n_iter=8)
    assert isinstance(result, Ratio)
    assert len(result.median) == len(result.third_quartile) == 8
    assert all(a <= b for a, b in zip(result.median, result.third_quartile, strict=True))
    assert all(a <= b for a, b in zip(result.third_quartile, result.largest, strict=True))


def test_judged_as_in_the_package_no_matrix_is_above_ao_admm():
    drawn = fresh("small", 3, count=4, seed=5)
    model = random_network(small_config(n_points=2))
    judged = compare(model, drawn, n_iter=8, safeguard=SAFEGUARDS["after"])
    assert isinstance(judged, Ratio)
    assert max(judged.largest) <= 1 + 1e-12


def test_command_prints_a_table_for_each_set_and_writes_the_numbers(tmp_path, capsys):
    for name, n_points in (("init", 1), ("accel", 2)):
        config = small_config(n_points=n_points)
        card = Card(name, "1", config, {}, {})
        save_model(random_network(config).float(), card, tmp_path / f"{name}.safetensors")
    paths = [str(tmp_path / f"{name}.safetensors") for name in ("init", "accel")]
    main([*paths, "--count", "4", "--out", str(tmp_path / "found.json")])
    told = capsys.readouterr().out
    for path in paths:
        assert f"{path}, small set" in told
        assert f"{path}, large set" in told
    assert "as good at once as AO-ADMM at 20" in told
    assert "largest median" in told
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["networks"][paths[0]]["small"]["network"]) == 51
    assert len(found["networks"][paths[1]]["large"]["median"]) == 50
