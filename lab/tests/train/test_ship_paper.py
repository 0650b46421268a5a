"""A trained network goes into the package with its curve, and the former file is kept."""

import json

from tests.networks import random_network, small_config

from factormer.nn.zoo import Card, load_model, read_card, save_model
from factormer_lab.train import ship_paper

CONFIG = small_config()


def test_network_its_curve_and_the_former_version_are_put_in_their_places(tmp_path, monkeypatch):
    weights, released, curves, runs = (tmp_path / name for name in ("w", "old", "c", "runs"))
    for name, folder in (("WEIGHTS", weights), ("RELEASED", released), ("CURVES", curves)):
        folder.mkdir()
        monkeypatch.setattr(ship_paper, name, folder)
    training = {"steps": 2000, "device": "cpu", "options": {}}
    former = Card("init-r10-paper", "3", CONFIG, training, {})
    save_model(random_network(CONFIG), former, weights / "init-r10-paper.safetensors")
    folder = runs / "init-r10-paper"
    folder.mkdir(parents=True)
    new = Card("init-r10-paper", "1", CONFIG, training, {})
    save_model(random_network(CONFIG), new, folder / "init-r10-paper.safetensors")
    errors = [0.5 / (t + 1) for t in range(21)]
    lines = [
        {"step": 900, "loss": 2.0, "seconds": 1.0},
        {"step": 1000, "loss": 1.0, "seconds": 2.0},
        {"step": 1000, "small": errors, "large": errors, "seconds": 3.0},
    ]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    monkeypatch.setattr("sys.argv", ["ship_paper", str(runs)])
    ship_paper.main()
    assert read_card(weights / "init-r10-paper.safetensors").version == "4"
    assert load_model("init-r10-paper", version=3, folder=released).config == CONFIG
    assert [path.name for path in weights.iterdir()] == ["init-r10-paper.safetensors"]
    curve = json.loads((curves / "init-r10-paper.json").read_text())
    assert curve["loss"] == {"step": [1000], "seconds": [2.0], "loss": [1.0]}
    assert curve["validation"]["small"] == [[0.5, 0.25, 0.08333, 0.02381]]
