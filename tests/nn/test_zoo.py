"""Weights files: every shipped one loads, a saved one comes back, a wrong one gets a sentence."""

import json
import pickle
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from factormer import factorize
from factormer.data import Dense
from factormer.data.factors import Factors
from factormer.nn.anyrank import AnyRankConfig, AnyRankNetwork
from factormer.nn.factormer import ModelConfig
from factormer.nn.zoo import (
    FORMAT,
    Card,
    checksum,
    find_model,
    find_version,
    load_any_factormer,
    load_any_rank,
    load_factormer,
    load_model,
    load_rank,
    models,
    read_card,
    save_model,
)
from tests.data.test_files import fill_the_disk
from tests.networks import random_any_rank, random_network, small_config
from tests.nn.cases import draw_point, each_config
from tests.nn.test_anyrank import draw as draw_moves

NAMES = [name for name, card in models().items() if isinstance(card.config, ModelConfig)]
ANY_RANK = [name for name, card in models().items() if isinstance(card.config, AnyRankConfig)]
RELEASED = Path(__file__).parents[2] / "lab" / "released"
each_model = pytest.mark.parametrize("name", NAMES)

CONFIG = small_config()
CARD = Card("mine", "3", CONFIG, {"steps": 7, "data": "noise"}, {"RMSE": [0.5, 0.25]})


@pytest.fixture
def path(tmp_path) -> Path:
    """A weights file as it should be."""
    path = tmp_path / "mine.safetensors"
    save_model(random_network(CONFIG), CARD, path)
    return path


def write(
    path: Path, *, header: Any = None, tensors: dict[str, torch.Tensor] | None = None
) -> None:
    """Put another header or other tensors into a weights file."""
    contents = load_file(path) if tensors is None else tensors
    save_file(contents, path, metadata=header)


def header_of(card: Any) -> dict[str, str]:
    return {"format": FORMAT, "card": json.dumps(card)}


# Shipped networks


def test_networks_for_all_uses_are_shipped():
    assert {card.use for card in models().values()} == {"init", "accelerator", "model"}


def test_shipped_network_for_the_rank_loads_with_a_card_of_its_own(golden):
    model, card = load_rank("rank"), models()["rank"]
    assert (card.name, card.config, card.use) == ("rank", model.config, "model")
    assert find_model("rank").stat().st_size < 2e6
    assert str(card).startswith(f"rank (version {card.version}): model, any rank")
    assert card.training["finished"]
    assert card.training["where it holds"]
    json.dumps(asdict(card))
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(6, model.config.n_features, generator=rng).double()
    with torch.no_grad():
        p = model.double().probabilities(features, torch.ones(6, dtype=torch.bool))
    golden("model-rank", rtol=1e-6, probabilities=p)


LOADERS = {
    "init-r10": load_factormer,
    "any-rank": load_any_rank,
    "any-rank-init": load_any_factormer,
    "rank": load_rank,
}


@pytest.mark.parametrize("name", LOADERS)
def test_network_of_another_kind_is_refused_with_what_it_is(name):
    LOADERS[name](name)
    for other in LOADERS.keys() - {name}:
        words = rf"{name} (is a|chooses a rank|serves only rank 10).*; choose (an?|one) "
        with pytest.raises(ValueError, match=words):
            LOADERS[other](name)


@each_model
def test_shipped_model_loads_ready_for_use(name):
    model = load_model(name)
    assert model.config == models()[name].config
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    assert all(p.isfinite().all() for p in model.parameters())


@each_model
def test_card_of_a_shipped_model_says_what_it_is(name):
    card = models()[name]
    assert card.name == name
    assert card.version
    assert isinstance(card.config, ModelConfig)
    assert card.config.rank == 10
    assert card.use == ("init" if card.config.n_points == 1 else "accelerator")
    assert card.training
    assert card.figures
    assert str(card).startswith(f"{name} (version {card.version}): {card.use}, rank 10")
    json.dumps(asdict(card))


@each_model
def test_golden_output_of_a_shipped_model(name, golden):
    """A fixed matrix and point in float64; the network is stored in float32."""
    model, rng = load_factormer(name).double(), torch.Generator().manual_seed(0)
    V = torch.rand(6, 2, generator=rng, dtype=torch.float64)
    V = V @ torch.rand(2, 5, generator=rng, dtype=torch.float64)
    with torch.no_grad():
        x = model(draw_point(model.config, 6, 5, rng), Dense(2 * V))
    assert x.W.any()
    assert x.H.any()
    golden(f"model-{name}", rtol=1e-6, W=x.W, H=x.H)


# Versions and names of the past


def test_version_is_the_shipped_one_or_a_file_in_a_folder(path, tmp_path, monkeypatch):
    shipped = models()["init-r10-paper"].version
    assert find_version("init-r10-paper", shipped) == find_model("init-r10-paper")
    named = path.rename(tmp_path / "mine-3.safetensors")
    assert load_model("mine", version=3, folder=tmp_path).config == CONFIG
    monkeypatch.setenv("FACTORMER_RELEASED", str(tmp_path))
    assert find_version("mine", "3") == named
    named.rename(tmp_path / "mine-4.safetensors")
    with pytest.raises(ValueError, match="holds version 3 of mine, and not version 4"):
        load_model("mine", version="4")
    with pytest.raises(FileNotFoundError, match=r"no weights file .*mine-3\.safetensors"):
        load_model("mine", version=3)


def test_version_without_a_folder_says_where_the_files_are(monkeypatch):
    monkeypatch.delenv("FACTORMER_RELEASED", raising=False)
    with pytest.raises(ValueError, match=r"pass folder=, or set FACTORMER_RELEASED.*lab/released"):
        load_model("init-r10-paper", version=3)


def test_every_released_file_of_the_past_can_be_loaded():
    files = sorted(RELEASED.glob("*.safetensors"))
    assert len(files) >= 3
    for file in files:
        name, _, version = file.stem.rpartition("-")
        config = load_model(name, version=version, folder=RELEASED).config
        assert isinstance(config, ModelConfig)
        assert config.rank == 10


def test_retired_name_leads_to_its_successor_with_a_warning():
    with pytest.warns(FutureWarning, match="'init-r10-literal' has retired.*'init-r10-paper'"):
        assert find_model("init-r10-literal") == find_model("init-r10-paper")
    V = torch.rand(12, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.warns(FutureWarning, match="'init-r10-literal' has retired"):
        old = factorize(V, 10, init="init-r10-literal", max_iter=2, safeguard="always")
    new = factorize(V, 10, init="init-r10-paper", max_iter=2, safeguard="always")
    assert torch.equal(old.W, new.W)


@pytest.mark.parametrize("name", ANY_RANK)
def test_shipped_any_rank_network_loads_with_a_card_of_its_own(name):
    model, card = load_any_rank(name), models()[name]
    assert (card.name, card.config, card.use) == (name, model.config, "accelerator")
    assert not any(p.requires_grad for p in model.parameters())
    assert all(p.isfinite().all() for p in model.parameters())
    assert str(card).startswith(f"{name} (version {card.version}): accelerator, any rank")
    assert card.training["finished"]
    assert card.figures
    json.dumps(asdict(card))


@pytest.mark.parametrize("name", ANY_RANK)
def test_golden_output_of_a_shipped_any_rank_network(name, golden, rng):
    """The amounts for fixed moves in float64; the network is stored in float32."""
    _, given = draw_moves(rng)
    with torch.no_grad():
        mixing = load_any_rank(name).double()(*given)
    golden(f"model-{name}", rtol=1e-6, **mixing._asdict())


def test_a_card_says_in_words_what_was_stopped_early():
    told = str(models()["accel-r10"])
    assert "steps: 936 of 1872: this stage of the training was stopped early" in told
    assert not any("finished" in str(card) for card in models().values())


def test_there_is_a_network_for_any_rank():
    assert "any-rank" in ANY_RANK


def test_saved_any_rank_network_comes_back(tmp_path):
    model, path = random_any_rank(), tmp_path / "mine.safetensors"
    card = replace(CARD, config=model.config)
    save_model(model, card, path)
    loaded = load_any_rank(path)
    assert read_card(path) == card
    for key, weight in loaded.state_dict().items():
        assert torch.equal(weight, model.state_dict()[key].float())


def test_network_of_the_other_kind_is_refused_with_a_sentence(path, tmp_path):
    other, model = tmp_path / "other.safetensors", random_any_rank()
    save_model(model, replace(CARD, config=model.config), other)
    assert isinstance(load_model(other), AnyRankNetwork)
    with pytest.raises(ValueError, match="is an any-rank accelerator; choose a network that serve"):
        load_factormer(other)
    with pytest.raises(ValueError, match="serves only rank 3; choose an any-rank accelerator"):
        load_any_rank(path)


def test_loading_executes_nothing_from_the_file(monkeypatch, path):
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("something was unpickled")

    monkeypatch.setattr(torch, "load", refuse)
    for function in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, function, refuse)
    for name in (*NAMES, path):
        load_model(name)


def test_loading_leaves_the_global_generator_alone(path):
    before = torch.get_rng_state()
    load_model(path)
    assert torch.equal(torch.get_rng_state(), before)


# Saving


@each_config
def test_saved_model_comes_back_in_single_precision(config, tmp_path, rng):
    model, path = random_network(config), tmp_path / "mine.safetensors"
    save_model(model, replace(CARD, config=config), path)
    loaded = load_model(str(path))
    assert loaded.config == config
    for key, weight in loaded.state_dict().items():
        assert torch.equal(weight, model.state_dict()[key].float())
    x, V = draw_point(config, 6, 5, rng), Dense(torch.rand(6, 5, generator=rng).double())
    expected, found = (network.float().double()(x, V) for network in (model, loaded))
    torch.testing.assert_close(Factors(*found), Factors(*expected))


def test_saved_card_comes_back(path):
    assert read_card(path) == CARD


def test_saving_replaces_the_old_file_and_leaves_nothing_beside(path):
    before = checksum(path)
    save_model(random_network(CONFIG, seed=1), CARD, path)
    assert checksum(path) != before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_file_that_cannot_be_written_is_said_with_a_sentence(tmp_path):
    path = tmp_path / "missing" / "mine.safetensors"
    with pytest.raises(OSError, match=r"mine\.safetensors cannot be written .* another folder"):
        save_model(random_network(CONFIG), CARD, path)


# Wrong files


def test_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match="there is no network 'nonsense'; the shipped") as caught:
        load_model("nonsense")
    assert all(name in str(caught.value) for name in NAMES)
    assert "give the path of its .safetensors file" in str(caught.value)


def test_missing_file_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"there is no weights file .*x\.safetensors; check"
    ):
        load_model(tmp_path / "x.safetensors")


@pytest.mark.parametrize("size", [0, 4, 100, -1], ids=["empty", "length", "header", "last byte"])
def test_truncated_file_is_refused_with_a_sentence(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"(?s)is not a whole safetensors file .*; copy or train"):
        load_model(path)


def test_pickle_in_disguise_is_refused_with_a_sentence(path):
    torch.save({"weights": torch.ones(3)}, path)
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        load_model(path)


@pytest.mark.parametrize(
    ("header", "found"), [(None, "None"), ({"format": "pt"}, "'pt'"), ({"a": "b"}, "None")]
)
def test_safetensors_file_of_others_is_refused_with_a_sentence(path, header, found):
    write(path, header=header)
    sentence = f"not one of this program: its format is {found} and '{FORMAT}' is expected"
    with pytest.raises(ValueError, match=sentence):
        load_model(path)


@pytest.mark.parametrize(
    "header",
    [
        {"format": FORMAT},
        {"format": FORMAT, "card": "{"},
        header_of(None),
        header_of([]),
        header_of({}),
        header_of(asdict(CARD) | {"author": "me"}),
        header_of(asdict(CARD) | {"config": {"depth": 3}}),
        header_of(asdict(CARD) | {"config": {"variant": "other"}}),
        header_of(asdict(CARD) | {"config": {"width": 0}}),
        header_of({k: v for k, v in asdict(CARD).items() if k != "figures"}),
    ],
    ids=str,
)
def test_card_that_cannot_be_read_is_refused_with_a_sentence(path, header):
    write(path, header=header)
    with pytest.raises(ValueError, match=r"(?s)the card in .*mine\.safetensors cannot be read: "):
        load_model(path)


@pytest.mark.parametrize("changes", [{"width": 4}, {"n_pairs": 1}, {"variant": "refining"}])
def test_card_that_does_not_fit_its_tensors_is_refused_with_a_sentence(path, changes):
    write(path, header=header_of(asdict(replace(CARD, config=small_config(**changes)))))
    with pytest.raises(ValueError, match=r"mine\.safetensors does not fit the config in its own"):
        load_model(path)


@pytest.mark.parametrize("change", ["missing", "extra", "none"])
def test_tensors_that_do_not_fit_the_card_are_refused_with_a_sentence(path, change):
    tensors = load_file(path)
    first, *_ = tensors
    changed = {
        "missing": {key: tensor for key, tensor in tensors.items() if key != first},
        "extra": tensors | {"other": torch.ones(3)},
        "none": {},
    }
    write(path, header=header_of(asdict(CARD)), tensors=changed[change])
    with pytest.raises(ValueError, match="does not fit the config in its own card"):
        load_model(path)


def test_card_of_an_impossible_network_is_refused_with_a_sentence(path):
    write(path, header=header_of(asdict(replace(CARD, config=replace(CONFIG, width=9)))))
    with pytest.raises(ValueError, match=r"does not fit the config .* width is 9"):
        load_model(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_with_a_sentence(path, value):
    tensors = load_file(path)
    next(iter(tensors.values())).view(-1)[0] = value
    write(path, header=header_of(asdict(CARD)), tensors=tensors)
    with pytest.raises(ValueError, match=r"mine\.safetensors has weights that are NaN, infinite"):
        load_model(path)


@pytest.mark.parametrize("changes", [{"n_pairs": 10**9}, {"width": 10**9}, {"ffn_width": 10**12}])
def test_a_card_of_a_giant_is_refused_before_it_is_built(path, changes):
    write(path, header=header_of(asdict(replace(CARD, config=replace(CONFIG, **changes)))))
    with pytest.raises(ValueError, match=r"mine\.safetensors does not fit the config in its own"):
        load_model(path)


def test_card_nested_without_end_is_refused_with_a_sentence(path):
    write(path, header={"format": FORMAT, "card": "[" * 100_000})
    with pytest.raises(ValueError, match=r"the card in .* cannot be read: it is nested too deep"):
        load_model(path)


def test_a_full_disk_leaves_the_old_network(path, monkeypatch):
    before = checksum(path)
    fill_the_disk(monkeypatch, 0)
    with pytest.raises(OSError, match=r"mine\.safetensors cannot be written \(No space left"):
        save_model(random_network(CONFIG, seed=1), CARD, path)
    monkeypatch.undo()
    assert checksum(path) == before
