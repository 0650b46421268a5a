"""What `factormer fit` does for domains: comparisons, sounds, mutation types, and advice."""

import csv
import json

import numpy as np
import pytest
import scipy.io.wavfile

import factormer
from factormer.app.cli import main, told
from factormer.app.read.sound import write_wav
from factormer.penalties import Simplex
from tests.app.read.test_domains import types


@pytest.fixture
def catalogue(tmp_path):
    """Counts of 96 mutation types in 12 tumours, of three signatures, and these beside them."""
    random = np.random.default_rng(0)
    H = random.dirichlet([0.1] * 96, 3).T  # (96, 3)
    V = random.poisson(400 * random.dirichlet([1.0] * 3, 12) @ H.T).T
    np.savez(tmp_path / "counts.npz", V=V, channels=np.array(types()))
    order = random.permutation(96)
    with (tmp_path / "known.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["type", "SBS1", "SBS2", "SBS3"])
        writer.writerows([types()[i], *H[i]] for i in order)
    return tmp_path


def test_components_are_compared_by_labels(catalogue, capsys, monkeypatch):
    monkeypatch.chdir(catalogue)
    asked = ["fit", "counts.npz", "--rank", "3", "--compare", "known.csv", "--out", "run"]
    assert main([*asked, "--columns-are", "tumours", "--loss", "kl", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    pairs = answer["compared"]["3"]
    assert sorted(pair["reference"] for pair in pairs) == ["SBS1", "SBS2", "SBS3"]
    assert min(pair["cosine"] for pair in pairs) > 0.8
    assert answer["data"]["rows"].startswith("96 mutation types: ")
    assert answer["data"]["columns"] == "12 tumours without labels"
    table = (catalogue / "run" / "rank-3" / "references.csv").read_text().splitlines()
    assert table[0] == "component,reference,cosine,angle,nearest,nearest_cosine,sum,sum_cosine"
    assert len(table) == 4
    page = (catalogue / "run" / "report.html").read_text(encoding="utf-8")
    assert '"mutations":{"order":[0,' in page
    assert f'"references":[{{"text":"{pairs[0]["reference"]}, cosine ' in page
    assert main([*asked, "--columns-are", "tumours", "--loss", "kl"]) == 0
    assert "component, reference, cosine (angle)" in capsys.readouterr().out


def test_what_cannot_be_compared_is_refused_before_the_fit(catalogue, capsys, monkeypatch):
    monkeypatch.chdir(catalogue)
    (catalogue / "other.csv").write_text("a,b\n1,2\n3,4\n")
    assert main(["fit", "counts.npz", "--rank", "2", "--compare", "other.csv", "--out", "run"]) == 1
    assert "--compare other is 2×2, and neither side is" in capsys.readouterr().err
    assert not (catalogue / "run").exists()


def test_components_of_a_sound_are_written(tmp_path, capsys):
    t = np.arange(4000) / 8000
    sound = 0.4 * np.sin(2 * np.pi * 440 * t) * (t < 0.25) + 0.3 * np.sin(2 * np.pi * 1000 * t)
    write_wav(tmp_path / "a.wav", 8000, sound)
    out = tmp_path / "run"
    for transposed in ([], ["--transpose", "--fresh"]):
        asked = ["fit", str(tmp_path / "a.wav"), "--rank", "2", "--out", str(out)]
        assert main([*asked, "--max-iter", "20", *transposed]) == 0
        parts = [scipy.io.wavfile.read(out / "rank-2" / f"component-{c}.wav") for c in (1, 2)]
        assert [rate for rate, _ in parts] == [8000, 8000]
        total = sum(part.astype(float) for _, part in parts) / np.iinfo(np.int16).max
        np.testing.assert_allclose(total, sound, atol=1e-3)
        assert "sounds of components: " in capsys.readouterr().out


def test_shares_come_with_advice(tmp_path, capsys):
    random = np.random.default_rng(1)
    V = random.dirichlet([0.5] * 3, 40) @ random.uniform(0.1, 1, (3, 9))
    np.save(tmp_path / "data.npy", V + 0.01 * random.uniform(size=V.shape))
    asked = ["fit", str(tmp_path / "data.npy"), "--rank", "3", "--regularize-w", "simplex"]
    assert main([*asked, "--max-iter", "2", "--out", str(tmp_path / "a")]) == 0
    told = capsys.readouterr().out
    assert "rank 3: --max-iter 2 came before --tol 0.0001" in told
    assert "add --regularize-h volume to get those that enclose the data most tightly" in told
    assert main([*asked, "--regularize-h", "volume", "--out", str(tmp_path / "b")]) == 0
    told = capsys.readouterr().out
    options = json.loads((tmp_path / "b" / "run.json").read_text())["options"]
    assert (
        "--regularize-h volume: its weight and δ come from a fit of rank 3 without it; "
        f"the same as --regularize-h {options['regularize_h'][0]}\n"
    ) in told
    assert "converged" in told
    assert "most tightly" not in told
    weight = float(options["regularize_h"][0].split(":")[1])
    plain = factormer.factorize(np.load(tmp_path / "data.npy"), 3, regularize_W=Simplex())
    assert weight == pytest.approx(plain.rmse**2 * 360 / 2, rel=0.1)


def test_shares_of_wavelengths_are_told_before_the_fit(tmp_path, capsys):
    """Of pixels they are meant: a cube has its bands on one side, and its pixels on the other."""
    random = np.random.default_rng(1)
    V = random.uniform(0.1, 1, (9, 2)) @ random.dirichlet([0.5] * 2, 12).T
    np.savez(tmp_path / "cube.npz", V=V, wavelengths=np.linspace(400, 2400, 9))
    asked = ["fit", str(tmp_path / "cube.npz"), "--rank", "2", "--max-iter", "5", "--fresh"]
    asked += ["--out", str(tmp_path / "run")]
    pixels = [*asked, "--columns-are", "3x4", "--regularize-w", "simplex"]
    line = (
        "rows are wavelengths: with --regularize-w simplex the shares of each wavelength sum to "
        "one; for shares of pixels add --transpose or use --regularize-h simplex"
    )
    assert main(pixels) == 0
    told = capsys.readouterr().out.splitlines()
    assert told.index(line) < next(i for i, text in enumerate(told) if "RMSE" in text)
    assert main([*pixels, "--json"]) == 0
    told = capsys.readouterr()
    assert line in told.err
    json.loads(told.out)
    turned = [*asked, "--transpose", "--rows-are", "3x4", "--regularize-w", "simplex"]
    for right in (turned, [*pixels[:-2], "--regularize-h", "simplex"]):
        assert main(right) == 0
        assert "sum to one" not in capsys.readouterr().out
    assert main([*turned[:-2], "--regularize-h", "simplex"]) == 0
    assert "columns are wavelengths: with --regularize-h simplex" in capsys.readouterr().out


def test_ratings_are_hidden_only_where_they_are_known(tmp_path, capsys):
    random = np.random.default_rng(2)
    V = random.uniform(1, 2, (20, 2)) @ random.uniform(1, 2, (2, 15))
    rated = [(i, j) for i in range(20) for j in range(15) if random.random() < 0.6]
    lines = [f"u{i},m{j},{V[i, j]:.6f}" for i, j in rated]
    (tmp_path / "r.csv").write_text("user,movie,rating\n" + "\n".join(lines) + "\n")
    asked = ["fit", str(tmp_path / "r.csv"), "--layout", "ratings", "--rank", "1"]
    assert main([*asked, "--holdout", "0.2", "--out", str(tmp_path / "a"), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert np.sqrt(2 * np.mean(result["held_out"])) < 1  # zeros would be 4 away


def test_seconds_of_compiling_are_told(capsys):
    event = pytest.importorskip("numba.core.event")
    with told.compiling() as spent, event.trigger_event("numba:compile"):
        pass
    assert len(spent) == 1
    with told.compiling() as none:
        pass
    assert not none
    for seconds in (0.2, 41.3):
        told.print_results([], "frobenius", seconds)
        assert ("compiling (41 s, which its seconds may" in capsys.readouterr().out) == (
            seconds > 1
        )
