# %% [markdown]
# # Parts of a picture
#
# The example that made NMF known. Each image is a row of V. A component is an image too, and since
# nothing can be subtracted, components become parts.
#
# First, pictures whose parts we know: 256 swimmers, with every way to hold two arms and two legs
# (after Donoho & Stodden, 2003). Each is a body and four limbs, and each limb has four positions.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits

import factormer
from factormer.datasets import make_swimmers

swimmers = make_swimmers()
result = factormer.factorize(swimmers.V, 17, n_init=10, random_state=0)
print(f"{swimmers.V.shape[0]} images of 32×32 pixels: {result.status}, RMSE {result.rmse:.1e}")

# %%
figure, axes = plt.subplots(
    3,
    8,
    num="Seven of the swimmers, and the 17 components",
    layout="constrained",
    figsize=(8.4, 3.3),
)
images = [*swimmers.V[5::36].reshape(-1, 32, 32), *result.H.T.reshape(-1, 32, 32)]
for ax in axes.flat:
    ax.set_axis_off()
for ax, image in zip(axes.flat, images, strict=True):
    ax.imshow(image, cmap="gray")
plt.show()

# %% [markdown]
# Are these the parts that the swimmers were made of? Pair each true part with a component, and
# compare them by their cosine.

# %%
unit = [X / np.linalg.norm(X, axis=0) for X in (swimmers.H, result.H)]
cosines = unit[0].T @ unit[1]
pairs = linear_sum_assignment(-cosines)
for name, cosine in sorted(zip(swimmers.components, cosines[pairs], strict=True)):
    print(f"{name:>12}: {cosine:.2f}")

# %% [markdown]
# All sixteen limbs are found. The body is not a component of its own: every swimmer has it, so it
# can be shared out among the limbs of one kind at no cost. The fit is exact either way, and no
# method could tell from these pictures alone. Such freedom is common, and a reason to
# [ask how far to trust a fit](../howto/trust.md).
#
# ## Digits
#
# Real pictures are not exact sums of parts. Scikit-learn's 1797 handwritten digits have strokes,
# and sixteen components explain most of them.

# %%
V = load_digits().data  # 1797 images of 8×8 pixels
result = factormer.factorize(V, 16, random_state=0)
share = result.W.sum(axis=0) * result.H.sum(axis=0) / V.sum()  # of all ink
figure, axes = plt.subplots(
    2,
    8,
    num="The 16 components of the digits, with their share of all ink",
    layout="constrained",
    figsize=(8.4, 2.4),
)
for ax, part, percent in zip(axes.flat, result.H.T, 100 * share, strict=True):
    ax.imshow(part.reshape(8, 8), cmap="gray")
    ax.set_title(f"{percent:.0f} %")
    ax.set_axis_off()
plt.show()

# %% [markdown]
# How good can a rank-16 approximation be? The truncated SVD, which may subtract, is the bound.

# %%
values = np.linalg.svd(V, compute_uv=False)
bound = np.sqrt((values[16:] ** 2).sum() / V.size)
print(
    f"RMSE {result.rmse:.3f}, {100 * (result.rmse / bound - 1):.0f} % above the SVD's {bound:.3f}"
)

# %% [markdown]
# A digit is a sum of a few parts. The coefficients say which.

# %%
figure, axes = plt.subplots(
    3,
    7,
    num="Three digits, their approximations, and their largest parts",
    layout="constrained",
    figsize=(8.4, 3.9),
)
for row, i in zip(axes, (5, 8, 13), strict=True):
    whole = result.W[i] @ result.H.T
    parts = result.W[i] * result.H.sum(axis=0) / whole.sum()
    largest = parts.argsort()[::-1][:5]
    shown = [("digit", V[i]), ("sum", whole)]
    shown += [(f"{100 * parts[k]:.0f} %", result.H[:, k]) for k in largest]
    for ax, (title, image) in zip(row, shown, strict=True):
        ax.imshow(image.reshape(8, 8), cmap="gray")
        ax.set_title(title)
        ax.set_axis_off()
plt.show()
