"""`python -m factormer_lab.train CONFIG`: the command `train` where typer and rich are missing.

    python -m factormer_lab.train init-r10-paper --device cuda --seconds 450 --out runs/first

It prints a line at each measurement, and the errors of the card last.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from factormer.nn.zoo import read_card
from factormer_lab.train import command

_PAUSE = 10  # seconds between two lines that say how far a training is


class Lines:
    """A screen of plain lines, for logs."""

    def __init__(self) -> None:
        self.told = -float("inf")

    def at(self, text: str, *, done: int | None, total: int | None) -> None:
        now = time.monotonic()
        if now - self.told >= _PAUSE:
            self.told = now
            self.line(text if done is None else f"{done} of {total} updates  {text}")

    def line(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Train, and print the card."""
    parser = argparse.ArgumentParser(prog="python -m factormer_lab.train")
    parser.add_argument("config", type=Path, help="TOML file, or name of one in lab/configs")
    parser.add_argument("--out", type=Path, help="folder of the run; default runs/NAME")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, help="length of the run and of its schedule")
    parser.add_argument("--from", dest="begin", help="weights to begin from: a name, or a file")
    parser.add_argument("--minutes", type=float, help="stop after this time; run again to continue")
    options = parser.parse_args(arguments)
    until = command.until(options.minutes)
    command.check_device(options.device)
    kind = command.read(options.config, seconds=options.seconds, begin=options.begin)
    path = command.run(kind, Lines(), out=options.out, device=options.device, until=until)
    if path is not None:
        sys.stdout.write(f"{read_card(path)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
