# %% [markdown]
# # Mutational signatures: what left its mark on a genome
#
# A tumour's mutations, counted in 96 classes (the base that changed and its two neighbours), are a
# mixture of traces of processes: age, enzymes, broken repair. V has a row per class and a column
# per tumour; W holds the signatures. These are counts again, so we use Kullback–Leibler.
#
# The data are 100 breast cancers, `brca_sbs96.npz` (from Nik-Zainal et al., 2016, judging by the
# names of the samples), in the folder that `FACTORMER_DATA` names.

# %%
import numpy as np
from drawing import COLOURS, grid, save

import factormer
from factormer.datasets import data_folder

data = np.load(data_folder() / "brca_sbs96.npz")
V, channels = data["V"].astype(np.float64), data["channels"]
print(f"{V.shape[0]} classes, {V.shape[1]} tumours, {int(V.sum())} mutations")

# %% [markdown]
# How many processes? Hide a tenth of the entries, fit the rest, and see how well the hidden ones
# are predicted; repeat five times with other entries hidden. A mask is `True` for known entries.

# %%
options = {"loss": "kullback-leibler", "max_iter": 500, "random_state": 0}


def predicted(rank, seed):
    """Mean Kullback–Leibler divergence of entries that were hidden."""
    hidden = np.random.default_rng(seed).random(V.shape) < 0.1
    fit = factormer.factorize(V, rank, mask=~hidden, **options)
    v, y = V[hidden], (fit.W @ fit.H.T)[hidden].clip(1e-9)
    return np.mean(np.where(v > 0, v * np.log(v.clip(1) / y), 0) - v + y)


for rank in range(2, 9):
    found = sorted(predicted(rank, seed) for seed in range(5))
    print(f"rank {rank}: median {found[2]:.2f}, from {found[0]:.2f} to {found[-1]:.2f}")

# %% [markdown]
# Beyond five, the median hardly falls and the spread is wider: we take five.

# %%
result = factormer.factorize(V, 5, **options)
size = result.W.sum(axis=0)
signatures, exposures = result.W / size, result.H * size  # mutations of each tumour by process
order = exposures.sum(axis=0).argsort()[::-1]
for number, k in enumerate(order, start=1):
    top = ", ".join(channels[signatures[:, k].argsort()[::-1][:3]])
    share = exposures[:, k].sum() / exposures.sum()
    print(f"signature {number}: {100 * share:.0f} % of all mutations, most of all {top}")

# %% [markdown]
# C>T before G, in signature 1, is the trace of age: methylated CpG loses an amino group. C>T and
# C>G after T, in signature 3, is the trace of the APOBEC enzymes.

# %%
kinds = [c[2:5] for c in channels]
names = sorted(set(kinds))
place = np.array(sorted(range(96), key=lambda i: (kinds[i], channels[i])))
figure, axes = grid(5, 1, width=8.4, height=6, sharex=True)
for number, (ax, k) in enumerate(zip(axes[:, 0], order, strict=True), start=1):
    colours = [COLOURS[names.index(kinds[i])] for i in place]
    ax.bar(range(96), 100 * signatures[place, k], color=colours, width=0.8)
    ax.set_title(f"signature {number}", loc="left")
    ax.set_ylabel("%")
axes[-1, 0].set_xticks(7.5 + 16 * np.arange(6), names)
axes[-1, 0].tick_params(length=0)
axes[-1, 0].set_xlim(-0.7, 95.7)
save(
    figure,
    "signatures.png",
    "The five signatures over the 96 classes, grouped by the base that changed",
)

# %%
figure, axes = grid(1, 1, width=8.4, height=2.6)
ax, bottom = axes[0, 0], np.zeros(V.shape[1])
tumours = exposures.sum(axis=1).argsort()[::-1]
for number, k in enumerate(order, start=1):
    height = exposures[tumours, k] / exposures[tumours].sum(axis=1)
    ax.bar(range(len(tumours)), height, bottom=bottom, width=1, label=f"signature {number}")
    bottom += height
ax.set_xlabel("tumours, those with most mutations first")
ax.set_ylabel("share of mutations")
ax.margins(x=0, y=0)
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
save(figure, "signatures-exposures.png", "What each tumour is made of")
