"""Make docs/pictures/report-*.png: reports of generated data, as Chromium shows them.

    make screenshots

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
import scipy.sparse
from PIL import Image
from tests.app.report.browser import chromium, drawn, show

from factormer.app.cli import main
from factormer.datasets import make_documents, make_scene, make_swimmers

PICTURES = Path(__file__).parent / "pictures"
MAX_BYTES = 300_000


def parts() -> list[str]:
    """A folder of images: swimmers, whose limbs are the components."""
    folder, swimmers = Path("swimmers"), make_swimmers()
    folder.mkdir()
    for name, image in zip(swimmers.rows, swimmers.V, strict=True):
        grey = (255 * image.reshape(32, 32).clip(0, 1)).astype(np.uint8)
        Image.fromarray(grey).save(folder / f"pose-{name}.png")
    return ["swimmers", "--rank", "17", "--n-init", "10", "--title", "Swimmers"]


def topics() -> list[str]:
    """Sparse counts with labels: documents."""
    documents = make_documents(1000)
    Path("documents.txt").write_text("\n".join(documents.rows))
    Path("terms.txt").write_text("\n".join(documents.columns))
    scipy.sparse.save_npz("words.npz", documents.V.tocsr())
    labels = ["--row-labels", "documents.txt", "--column-labels", "terms.txt"]
    loss = ["--loss", "kullback-leibler"]
    return ["words.npz", "--rank", "2..8", *loss, *labels, "--title", "A thousand documents"]


def spectra() -> list[str]:
    """A hyperspectral cube: a landscape."""
    np.save("scene.npy", make_scene(100, 150).V.reshape(100, 100, 150))
    return ["scene.npy", "--layout", "cube", "--rank", "2..6", "--title", "A landscape"]


def sound() -> list[str]:
    """Four notes."""
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
    "landing-report": ("topics", 900, "light", "body", "#cards", "pickComponent(1)"),
    "report-parts": ("parts", 1280, "light", "body", "#components", "pickComponent(3)"),
    "report-quality": ("topics", 1280, "dark", "#quality", "#alike", ""),
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
    home = Path.cwd()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        os.chdir(folder)
        for prepare in (parts, topics, spectra, sound):
            command = ["fit", *prepare(), "--out", prepare.__name__, "--no-progress"]
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
