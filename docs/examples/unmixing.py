# %% [markdown]
# # Hyperspectral unmixing: what a pixel is made of
#
# A hyperspectral camera sees a hundred bands or more instead of three colours. From far above, a
# pixel is a mixture of what lies in it. Unmixing finds the spectra of the materials (endmembers,
# the columns of H) and how much of each is in each pixel (abundances, the rows of W). Abundances
# are shares: nonnegative, with sum one. That is a constraint on W, `Simplex()`.
#
# The picture is generated, so we know the truth: a river, woods, soil and a road, 100×100 pixels in
# 150 bands.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment

import factormer
from factormer.datasets import make_scene
from factormer.penalties import Simplex, Volume

scene = make_scene(100, 150)
V, names = scene.V, scene.components  # 10000 pixels × 150 bands, reflectances
print(V.shape, ", ".join(names))

# %% [markdown]
# The scores are the spectral angle between each endmember and the true one (0° is the same shape)
# under the best pairing, and the error of the abundance maps. None of the fits sees the truth.


# %%
def scored(result):
    """Angles in degrees, RMSE of the abundances, and the pairing."""
    unit = [X / np.linalg.norm(X, axis=0) for X in (scene.H, result.H)]
    angles = np.degrees(np.arccos(np.clip(unit[0].T @ unit[1], -1, 1)))
    rows, pairing = linear_sum_assignment(angles)
    shares = result.W[:, pairing]
    shares = shares / shares.sum(axis=1, keepdims=True)
    return angles[rows, pairing], np.sqrt(np.mean((shares - scene.W) ** 2)), pairing


shares = factormer.factorize(V, 4, regularize_W=Simplex())
fits = {
    "plain": factormer.factorize(V, 4),
    "sum to one": shares,
    "and tight": factormer.factorize(
        V, 4, regularize_W=Simplex(), regularize_H=Volume(shares.loss)
    ),
}
for name, fit in fits.items():
    angles, error, _ = scored(fit)
    each = ", ".join(f"{n} {a:.0f}°" for n, a in zip(names, angles, strict=True))
    print(f"{name:>10}: mean angle {angles.mean():4.1f}° ({each}), abundances ±{error:.3f}")

# %% [markdown]
# The plain factorization fits best and means least: many factors fit equally well, and it returns
# any of them. Sum-to-one rules out most, but the endmembers may still lie far outside of the data.
# `Volume` on H prefers those that enclose the data tightly. Its weight is the misfit of the fit
# without it, a first choice that needs no reference. Water is the hardest: it is dark, so its
# spectrum is small next to the others, and small errors turn it by large angles.

# %%
fit = fits["and tight"]
angles, error, pairing = scored(fit)
figure, axes = plt.subplots(
    1,
    4,
    num="Endmembers, true and found, with their angles",
    layout="constrained",
    figsize=(8.4, 2.3),
    sharey=True,
)
for k, ax in enumerate(axes):
    true, found = scene.H[:, k], fit.H[:, pairing[k]]
    ax.plot(scene.columns, true, color="gray", linewidth=3, alpha=0.6, label="true")
    size = true @ found / (found @ found)
    ax.plot(scene.columns, size * found, color="C1", linewidth=1.2, label="found, scaled")
    ax.set_title(f"{names[k]}, {angles[k]:.1f}°")
    ax.set_xlabel("nm")
axes[0].set_ylabel("reflectance")
axes[0].legend(loc="upper right")
plt.show()

# %%
figure, axes = plt.subplots(
    2, 5, num="Abundance maps: true above, found below", layout="constrained", figsize=(8.4, 3.5)
)
bands = [np.abs(scene.columns - nm).argmin() for nm in (860, 650, 550)]
colour = V[:, bands].reshape(100, 100, 3)
axes[0, 0].imshow((colour / np.quantile(colour, 0.98)).clip(0, 1))
axes[0, 0].set_title("infrared, red, green")
for k in range(4):
    maps = {"true": scene.W[:, k], "found": fit.W[:, pairing[k]]}
    for ax, (word, values) in zip(axes[:, k + 1], maps.items(), strict=True):
        drawn = ax.imshow(values.reshape(100, 100), vmin=0, vmax=1)
        ax.set_title(f"{names[k]}, {word}")
for ax in axes.flat:
    ax.set_axis_off()
figure.colorbar(drawn, ax=axes[1, 0], location="left", shrink=0.9, label="abundance")
plt.show()
