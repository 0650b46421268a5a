# %% [markdown]
# # Faces: parts of a picture
#
# The example that made NMF known. Each image is a row of V; a component is an image too, and since
# nothing can be subtracted, components become parts: the light on a cheek, a beard, the rim of
# glasses.
#
# The data are the Yale faces, 165 images of 64×64 pixels. We may not redistribute them: get
# `Yale_64x64.mat` or `yale_faces_64.npz` and name its folder: `FACTORMER_DATA=… python
# docs/examples/faces.py`.

# %%
import numpy as np
from drawing import grid, save, show_image

import factormer
from factormer.datasets import data_folder, load_yale

V = load_yale(data_folder()).T.numpy()  # 165 images × 4096 pixels, of mean 1
result = factormer.factorize(V, 24, max_iter=500, random_state=0)
print(result.status)
print(f"{V.shape[0]}×{V.shape[1]}, rank 24: RMSE {result.rmse:.4f} of a mean of 1")

# %% [markdown]
# How good can a rank-24 approximation be? The truncated SVD, which may subtract, is the bound.

# %%
values = np.linalg.svd(V, compute_uv=False)
bound = np.sqrt((values[24:] ** 2).sum() / V.size)
print(f"SVD bound {bound:.4f}; NMF is {100 * (result.rmse / bound - 1):.1f} % above it")

# %%
share = result.W.sum(axis=0) * result.H.sum(axis=0) / V.sum()  # of all light in the images
order = share.argsort()[::-1]
figure, axes = grid(3, 8, width=8.4, height=3.6)
for ax, k in zip(axes.flat, order, strict=True):
    part = result.H[:, k].reshape(64, 64)
    bright = np.quantile(part, 0.98)
    show_image(ax, part, f"{100 * share[k]:.0f} %", cmap="gray", vmin=0, vmax=bright)
save(
    figure,
    "faces-components.png",
    "The 24 components, bright where they are strong, and their share of all light",
)

# %% [markdown]
# A face is a sum of a few parts. The coefficients say which.

# %%
figure, axes = grid(3, 7, width=8.4, height=3.9)
for row, i in zip(axes, (4, 60, 118), strict=True):
    show_image(row[0], V[i].reshape(64, 64), "face", cmap="gray")
    show_image(row[1], (result.W[i] @ result.H.T).reshape(64, 64), "sum", cmap="gray")
    parts = (result.W[i] * result.H.sum(axis=0)) / (result.W[i] @ result.H.T).sum()
    for ax, k in zip(row[2:], parts.argsort()[::-1], strict=False):
        show_image(ax, result.H[:, k].reshape(64, 64), f"{100 * parts[k]:.0f} %", cmap="gray")
save(
    figure,
    "faces-sums.png",
    "Three faces, their approximations, and the five largest parts of each",
)
