"""Write the files that `test_kept.py` reads, once for each release: `python -m tests.kept.write`.

The folder of a release is never written again: it stands for what its users have on disk.
"""

import os
from pathlib import Path

import numpy as np

import factormer
from factormer.app.cli import main

HERE = Path(__file__).parent


def table() -> np.ndarray:
    """The data of every file: two parts and a little noise, to be read from a table of 12×8."""
    rng = np.random.default_rng(0)
    V = rng.random((12, 2)) @ rng.random((2, 8)) + 0.01 * rng.random((12, 8))
    return V.round(4)


def write(folder: Path) -> None:
    """Write the files of this version to a new folder."""
    folder.mkdir()
    os.chdir(folder)
    V = table()
    np.savetxt("table.csv", V, delimiter=",", fmt="%.4f")
    model = factormer.NMF(2, random_state=0, alpha_W=1e-4, l1_ratio=0.5, tol=1e-2).fit(V)
    model.save(Path("model.safetensors"))
    np.save("coefficients.npy", model.transform(V))
    factormer.NMF(2, random_state=0).partial_fit(V[:6]).save(Path("stream.safetensors"))
    command = ["fit", "table.csv", "--rank", "1,2", "--out", "run", "--loss", "kl"]
    if main([*command, "--no-progress"]):
        raise SystemExit("the run failed")
    Path("run/report.html").unlink()  # `factormer report` makes it again


if __name__ == "__main__":
    numbers = factormer.__version__.split(".")
    write(HERE / f"v{numbers[0]}.{numbers[1]}")
