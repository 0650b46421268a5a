"""Make docs/pictures/report-*.png: reports of real data, as Chromium shows them.

    make screenshots FACTORMER_DATA=…

Needs chromium and chromedriver. The runs are made in a folder that is thrown away.
"""

from __future__ import annotations

import base64
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io.wavfile
from PIL import Image
from tests.app.report.browser import chromium, drawn, show

from factormer.app.cli import main
from factormer.datasets import data_folder

PICTURES = Path(__file__).parent / "pictures"
MAX_BYTES = 300_000


def faces(data: Path) -> list[str]:
    """A folder of images: the Yale faces."""
    folder = Path("faces")
    folder.mkdir()
    for i, face in enumerate(np.load(data / "yale_faces_64.npz")["V"]):
        image = Image.fromarray(face.reshape(64, 64).astype(np.uint8))
        image.save(folder / f"person{i // 11 + 1:02d}-{i % 11 + 1}.png")
    return ["faces", "--rank", "15", "--title", "Yale faces"]


def topics(data: Path) -> list[str]:
    """Sparse counts with labels: articles of the BBC."""
    meta = np.load(data / "bbc_news.meta.npz")
    names = [f"{meta['label_names'][k]} {i + 1}" for i, k in enumerate(meta["labels"])]
    Path("articles.txt").write_text("\n".join(names))
    Path("terms.txt").write_text("\n".join(meta["terms"]))
    Path("bbc.npz").write_bytes((data / "bbc_news.npz").read_bytes())
    labels = ["--row-labels", "articles.txt", "--column-labels", "terms.txt"]
    loss = ["--loss", "kullback-leibler"]
    return ["bbc.npz", "--rank", "5..12", *loss, *labels, "--title", "BBC News"]


def spectra(data: Path) -> list[str]:
    """A hyperspectral cube: Jasper Ridge."""
    stored = np.load(data / "jasper_ridge.npz")
    np.save("jasper.npy", stored["V"].T.reshape(100, 100, -1) / stored["scale"])
    return ["jasper.npy", "--layout", "cube", "--rank", "2..8", "--title", "Jasper Ridge"]


def sound(data: Path) -> list[str]:
    """Synthetic notes, since we have no recording that we may distribute."""
    rate, notes = 16000, {"C4": 261.6, "E4": 329.6, "G4": 392.0, "C5": 523.3}
    score = [(0, "C4"), (1, "E4"), (2, "G4"), (3, "C4"), (3, "G4"), (4, "E4"), (4.5, "C5")]
    score += [(5.5, "C4"), (5.5, "E4"), (5.5, "G4"), (6.8, "C5")]
    total = np.zeros(8 * rate)
    t = np.arange(int(1.2 * rate)) / rate
    for start, name in score:
        tones = [
            a * np.sin(2 * np.pi * notes[name] * k * t) for k, a in enumerate((1, 0.6, 0.35), 1)
        ]
        first = int(start * rate)
        total[first : first + len(t)] += sum(tones) * np.exp(-3 * t) * np.minimum(1, t / 0.01)
    total += 0.003 * np.random.default_rng(0).standard_normal(len(total))
    scipy.io.wavfile.write(
        "notes.wav", rate, (total / np.abs(total).max() * 30000).astype(np.int16)
    )
    return ["notes.wav", "--rank", "2..6", "--loss", "kullback-leibler", "--title", "Four notes"]


# Name of the picture: run, width, scheme, first and last element in it, and a script before it.
SHOTS = {
    "report-faces": ("faces", 1280, "light", "body", "#components", "pickComponent(3)"),
    "report-quality": ("faces", 1280, "dark", "#quality", "#alike", ""),
    "report-topics": ("topics", 1280, "light", "body", "#components", "pickComponent(1)"),
    "report-spectra": ("spectra", 1280, "light", "body", "#components", "pickRank(2)"),
    "report-residual": ("spectra", 1280, "light", "#residual", "#residual", "pickRank(2)"),
    "report-sound": ("sound", 1280, "dark", "body", "#components", ""),
    "report-phone": ("spectra", 390, "dark", "body", "#components", "pickRank(2)"),
    "report-phone-topics": ("topics", 390, "light", "body", "#cards", ""),
}


def shoot(
    driver: Any, page: Path, width: int, scheme: str, first: str, last: str, script: str
) -> bytes:
    """A picture of the page from one element to another; in few colours where it is large."""
    show(driver, page, width=width, scheme=scheme)
    driver.execute_script(script)
    drawn(driver)
    top, bottom = (
        driver.execute_script(
            f"return document.querySelector(arguments[0]).getBoundingClientRect().{edge} + scrollY",
            element,
        )
        for element, edge in ((first, "top"), (last, "bottom"))
    )
    clip = {"x": 0, "y": top, "width": width, "height": bottom - top, "scale": 1}
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    image = Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")
    picture, colours = _png(image), 512
    while len(picture) > MAX_BYTES and colours > 32:
        colours //= 2
        picture = _png(image.quantize(min(colours, 256), dither=Image.Dither.NONE))
    return picture


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def make() -> None:
    """Make all pictures."""
    data, home = data_folder().resolve(), Path.cwd()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        os.chdir(folder)
        for prepare in (faces, topics, spectra, sound):
            command = ["fit", *prepare(data), "--out", prepare.__name__, "--no-progress"]
            if main(command):
                raise SystemExit(f"the run {prepare.__name__} failed")
        for name, (run, *how) in SHOTS.items():
            picture = shoot(driver, Path(run) / "report.html", *how)
            if len(picture) > MAX_BYTES:
                raise SystemExit(f"{name} has {len(picture)} bytes; {MAX_BYTES} are allowed")
            (PICTURES / f"{name}.png").write_bytes(picture)
            print(f"{name}.png  {len(picture) // 1000} kB")
        os.chdir(home)


if __name__ == "__main__":
    make()
