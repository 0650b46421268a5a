"""factormer transform: coefficients of new rows for the components of a run."""

import json
from pathlib import Path

import numpy as np
import pytest

from factormer import NMF
from factormer.app.cli import main
from factormer.app.runs import RunFolder

pytestmark = pytest.mark.usefixtures("data_files")


def table(path: str) -> np.ndarray:
    lines = Path(path).read_text().splitlines()
    return np.array([[float(number) for number in line.split(",")[1:]] for line in lines[1:]])


def test_rows_of_the_fit_get_the_coefficients_that_it_had(capsys):
    assert main(["fit", "data.csv", "--rank", "3", "--max-iter", "500"]) == 0
    assert main(["transform", "data.csv", "--model", "runs/data"]) == 0
    assert "W 30×3, mean loss of an entry" in capsys.readouterr().out
    lines = Path("data.W.csv").read_text().splitlines()
    assert lines[0] == "sample,component 1,component 2,component 3"
    assert lines[1].startswith("s0,")
    kept = RunFolder(Path("runs/data")).factors(3)
    W, H = table("data.W.csv"), kept["H"]
    np.testing.assert_allclose(W @ H.T, kept["W"] @ H.T, atol=1e-3)


@pytest.mark.parametrize(("loss", "name"), [("fro", "frobenius"), ("kl", "kullback-leibler")])
def test_new_rows_are_fitted_as_the_estimator_does(loss, name):
    assert main(["fit", "data.npy", "--rank", "2..3", "--loss", loss]) == 0
    run = RunFolder(Path("runs/data"))
    assert run.description()["options"]["loss"] == name
    new = np.random.default_rng(1).random((5, 16))
    np.save("new.npy", new)
    assert main(["transform", "new.npy", "--model", "runs/data", "--rank", "2"]) == 0
    model = NMF(2, beta_loss=name).fit(np.load("data.npy"))
    model.components_ = run.factors(2)["H"].T.copy()
    np.testing.assert_allclose(table("new.W.csv"), model.transform(new), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["data.csv", "data.npy"])
def test_samples_in_columns_are_said_to_want_transpose(name, capsys):
    assert main(["fit", name, "--rank", "2"]) == 0
    if name == "data.csv":
        cells = [line.split(",") for line in Path(name).read_text().splitlines()]
        rows = [",".join(row) for row in zip(*cells, strict=True)]
        Path("turned.csv").write_text("\n".join(rows) + "\n")
    else:
        np.save("turned.npy", np.load(name).T)
    turned = name.replace("data", "turned")
    assert main(["transform", turned, "--model", "runs/data"]) == 1
    assert "so its samples are its columns: add --transpose" in capsys.readouterr().err
    assert main(["transform", turned, "--model", "runs/data", "--transpose"]) == 0
    np.testing.assert_allclose(
        table("turned.W.csv"), RunFolder(Path("runs/data")).factors(2)["W"], rtol=0.05, atol=0.05
    )


def test_columns_follow_their_labels(capsys):
    assert main(["fit", "data.csv", "--rank", "2"]) == 0
    cells = [line.split(",") for line in Path("data.csv").read_text().splitlines()]
    turned = [[row[0], *reversed(row[1:])] for row in cells]
    Path("turned.csv").write_text("\n".join(",".join(row) for row in turned) + "\n")
    for name in ("data", "turned"):
        assert main(["transform", f"{name}.csv", "--model", "runs/data", "--json"]) == 0
    np.testing.assert_allclose(table("turned.W.csv"), table("data.W.csv"), rtol=1e-6, atol=1e-9)
    said = capsys.readouterr().out
    assert json.loads(said[said.rindex('{\n "schema"') :])["shape"] == [30, 2]
    other = [[*row[:-1], "gene77" if row[-1] == "gene15" else row[-1]] for row in cells]
    Path("other.csv").write_text("\n".join(",".join(row) for row in other) + "\n")
    assert main(["transform", "other.csv", "--model", "runs/data"]) == 1
    assert "lacks 'gene15' among its" in capsys.readouterr().err
    other = [[row[0], *(cell.replace("gene1", "g1") for cell in row[1:])] for row in cells]
    Path("other.csv").write_text("\n".join(",".join(row) for row in other) + "\n")
    assert main(["transform", "other.csv", "--model", "runs/data"]) == 1
    assert "lacks 'gene1' among its columns, and 6 more; it must" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["data.npy", "--model", "runs/data"], "runs/data has several ranks; choose one with"),
        (["data.npy", "--model", "runs/data", "--rank", "7"], "has no rank 7; choose one with"),
        (["narrow.npy", "--model", "runs/data", "--rank", "2"], "the new data has 9 columns"),
        (["data.npy", "--model", "nowhere"], "holds no run"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, sentence, capsys):
    np.save("narrow.npy", np.ones((4, 9)))
    assert main(["fit", "data.npy", "--rank", "2-3"]) == 0
    assert main(["transform", *arguments]) == 1
    assert sentence in capsys.readouterr().err
