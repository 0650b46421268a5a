# %% [markdown]
# # Topics: what 2225 news articles are about
#
# Word counts, one document per row, are sparse: `factorize` reads only the stored entries and
# never makes V dense. Counts call for Kullback–Leibler: it is the likelihood of Poisson data, and
# its factors are a topic model.
#
# The data are the BBC articles of Greene & Cunningham (2006), for non-commercial research: a
# sparse matrix `bbc_news.npz` with terms and labels in `bbc_news.meta.npz`, in the folder that
# `FACTORMER_DATA` names.

# %%
import numpy as np
import scipy.sparse
from drawing import grid, save
from sklearn.metrics import normalized_mutual_info_score

import factormer
from factormer.datasets import data_folder

counts = scipy.sparse.load_npz(data_folder() / "bbc_news.npz").astype(np.float64)
meta = np.load(data_folder() / "bbc_news.meta.npz")
terms, labels, names = meta["terms"], meta["labels"], meta["label_names"]
print(f"{counts.shape[0]} articles, {counts.shape[1]} stems, {counts.nnz} counts that are not 0")

# %%
result = factormer.factorize(counts, 5, loss="kullback-leibler", random_state=0)
size = result.H.sum(axis=0)
topics = result.H / size  # each column is a distribution over words
shares = result.W * size
shares /= shares.sum(axis=1, keepdims=True)  # each row: how much of each topic an article has
print(result.status)

# %% [markdown]
# Words that stand out: frequent in the topic, and rarer elsewhere. (The data contain stems, not
# whole words.)

# %%
lift = topics * np.log((topics + 1e-12) / topics.mean(axis=1, keepdims=True).clip(1e-12))
for k in range(5):
    print(f"topic {k}:", " ".join(terms[lift[:, k].argsort()[::-1][:9]]))

# %% [markdown]
# The articles came in five sections, which the factorization did not know.

# %%
largest = shares.argmax(axis=1)
table = np.array([np.bincount(labels[largest == k], minlength=5) for k in range(5)])
purity = table.max(axis=1).sum() / table.sum()
nmi = normalized_mutual_info_score(labels, largest)
print(f"{100 * purity:.1f} % of the articles are with most of their section; NMI {nmi:.3f}")

# %%
figure, axes = grid(1, 2, width=8.4, height=4.2, width_ratios=[1.15, 1])
ax = axes[0, 0]
for k in range(5):
    best = lift[:, k].argsort()[::-1][:5]
    heights = 6 * k + np.arange(5)
    ax.barh(heights, 100 * topics[best, k], color=f"C{k}")
    for y, word in zip(heights, terms[best], strict=True):
        ax.text(-0.02, y, word, ha="right", va="center", fontsize=7)
ax.invert_yaxis()
ax.set_yticks([])
ax.spines["left"].set_visible(False)
ax.set_xlabel("share of the topic's words, %")
ax.margins(x=0.02)
ax = axes[0, 1]
columns = table.argmax(axis=1)
drawn = ax.imshow(table[:, columns], cmap="Blues")
for k in range(5):
    for c in range(5):
        value = table[k, columns[c]]
        ax.text(c, k, value, ha="center", va="center", color="white" if value > 250 else "black")
ax.set_xticks(range(5), names[columns], rotation=25, ha="right")
ax.set_yticks(range(5), [f"topic {k}" for k in range(5)])
ax.set_title("articles by their largest topic and their section")
ax.spines[:].set_visible(False)
save(figure, "topics.png", "Words of the five topics, and the sections of their articles")
