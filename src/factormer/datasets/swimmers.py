"""Stick figures whose limbs are the parts to be found (after Donoho & Stodden, 2003)."""

from __future__ import annotations

import itertools

import numpy as np

from factormer.datasets.example import Example

SIDE = 32
_LENGTH = 8
# The joint of each limb, row and column, and the four directions that it may point to.
_LIMBS = {
    "left arm": ((10, 14), ((-1, -1), (0, -1), (1, -1), (-1, 0))),
    "right arm": ((10, 17), ((-1, 1), (0, 1), (1, 1), (-1, 0))),
    "left leg": ((21, 14), ((-1, -1), (0, -1), (1, -1), (1, 0))),
    "right leg": ((21, 17), ((-1, 1), (0, 1), (1, 1), (1, 0))),
}


def make_swimmers() -> Example:
    """Draw 256 swimmers of 32×32 pixels: one for each way to hold two arms and two legs.

    A row of V is an image, `V[i].reshape(32, 32)`. It is the sum of a body, which all have, and of
    four limbs, each in one of four positions: 17 parts in all, of which H holds the images. Nothing
    is random, and there is no noise.

    Returns
    -------
    Example
        `V` (256, 1024), `W` (256, 17) of zeros and ones, `H` (1024, 17).
    """
    body = np.zeros((SIDE, SIDE))
    body[10:22, 15:17] = 1
    parts, names = [body], ["body"]
    for limb, (joint, directions) in _LIMBS.items():
        for number, direction in enumerate(directions, start=1):
            parts.append(_line(joint, direction))
            names.append(f"{limb}, {number}")
    poses = list(itertools.product(range(4), repeat=4))
    W = np.zeros((len(poses), len(parts)))
    W[:, 0] = 1
    for row, pose in zip(W, poses, strict=True):
        row[[1 + 4 * limb + position for limb, position in enumerate(pose)]] = 1
    H = np.stack([part.ravel() for part in parts], axis=1)
    rows = np.array(["".join(str(k + 1) for k in pose) for pose in poses])
    columns = np.array([f"{i},{j}" for i in range(SIDE) for j in range(SIDE)])
    return Example(W @ H.T, W, H, rows, columns, np.array(names))


def _line(start: tuple[int, int], direction: tuple[int, int]) -> np.ndarray:
    """A straight limb of eight pixels, twice as thick as one, beside its joint."""
    image = np.zeros((SIDE, SIDE))
    down, right = direction
    for k in range(1, _LENGTH + 1):
        i, j = start[0] + k * down, start[1] + k * right
        image[i, j] = 1
        image[(i, j + 1) if down and right else (i + (down == 0), j + (right == 0))] = 1
    return image
