# %% [markdown]
# # Mutational signatures: what left its mark on a genome
#
# A tumour's mutations, counted in 96 classes (the base that changed and its two neighbours), are a
# mixture of traces of processes: age, enzymes, broken repair. V has a row per class and a column
# per tumour; W holds the signatures. These are counts again, so we use Kullback–Leibler.
#
# The 100 tumours are generated from five processes, so we can compare what is found with the truth.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment

import factormer
from factormer.datasets import make_mutations

tumours = make_mutations(100)
V, classes = tumours.V, tumours.rows
print(f"{V.shape[0]} classes, {V.shape[1]} tumours, {int(V.sum())} mutations")

# %% [markdown]
# How many processes? Hide a tenth of the entries, fit the rest, and see how well the hidden ones
# are predicted; repeat five times with other entries hidden.

# %%
loss = "kullback-leibler"
hidden = factormer.cross_validate(V, range(2, 9), loss=loss)
for rank, mean, error in zip(range(2, 9), hidden.mean, hidden.standard_error, strict=True):
    print(f"rank {rank}: {mean:.3f} ± {error:.3f}")
print(f"the smallest rank within one standard error of the best: {hidden.rank_1se}")

# %%
result = factormer.factorize(V, 5, loss=loss, random_state=0)
size = result.W.sum(axis=0)
signatures, exposures = result.W / size, result.H * size  # mutations of each tumour by process
unit = [X / np.linalg.norm(X, axis=0) for X in (tumours.W, signatures)]
_, order = linear_sum_assignment(-unit[0].T @ unit[1])
for name, k, cosine in zip(
    tumours.components, order, (unit[0] * unit[1][:, order]).sum(axis=0), strict=True
):
    share = exposures[:, k].sum() / exposures.sum()
    top = ", ".join(classes[signatures[:, k].argsort()[::-1][:3]])
    print(
        f"{name:>16}: cosine {cosine:.3f}, {100 * share:.0f} % of all mutations, most of all {top}"
    )

# %%
changes = [name[2:5] for name in classes[::16]]
colours = ("#1ebff0", "#5a646e", "#e62725", "#cbcacb", "#a1cf64", "#edc8c5")
figure, axes = plt.subplots(
    5,
    1,
    num="The five signatures over the 96 classes",
    layout="constrained",
    figsize=(8.4, 6),
    sharex=True,
)
for ax, name, k in zip(axes, tumours.components, order, strict=True):
    heights = 100 * signatures[:, k]
    ax.bar(range(96), heights, color=np.repeat(colours, 16), width=0.8, edgecolor="gray", lw=0.3)
    ax.set_title(name, loc="left")
    ax.set_ylabel("%")
axes[-1].set_xticks(7.5 + 16 * np.arange(6), changes)
axes[-1].tick_params(length=0)
axes[-1].set_xlim(-0.7, 95.7)
plt.show()

# %%
figure, ax = plt.subplots(
    num="What each tumour is made of", layout="constrained", figsize=(8.4, 2.6)
)
bottom = np.zeros(V.shape[1])
largest = exposures.sum(axis=1).argsort()[::-1]
for name, k in zip(tumours.components, order, strict=True):
    height = exposures[largest, k] / exposures[largest].sum(axis=1)
    ax.bar(range(len(largest)), height, bottom=bottom, width=1, label=name)
    bottom += height
ax.set_xlabel("tumours, those with most mutations first")
ax.set_ylabel("share of mutations")
ax.margins(x=0, y=0)
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
