# %% [markdown]
# # Topics: what a thousand documents are about
#
# Word counts, one document per row, are sparse: `factorize` reads only the stored entries and
# never makes V dense. Counts call for Kullback–Leibler: it is the likelihood of Poisson data, and
# its factors are a topic model.
#
# The documents are generated from five topics that share common words. With your own texts, begin
# with scikit-learn's `CountVectorizer`.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import normalized_mutual_info_score

import factormer
from factormer.datasets import make_documents

documents = make_documents(1000)
counts, terms = documents.V, documents.columns
print(f"{counts.shape[0]} documents, {counts.shape[1]} words, {counts.nnz} counts that are not 0")

# %%
result = factormer.factorize(counts, 5, loss="kullback-leibler", random_state=0)
size = result.H.sum(axis=0)
topics = result.H / size  # each column is a distribution over words
shares = result.W * size
shares /= shares.sum(axis=1, keepdims=True)  # each row: how much of each topic a document has
print(result.status)

# %% [markdown]
# Words that stand out: frequent in the topic, and rarer elsewhere.

# %%
lift = topics * np.log((topics + 1e-12) / topics.mean(axis=1, keepdims=True).clip(1e-12))
for k in range(5):
    print(f"topic {k + 1}:", " ".join(terms[lift[:, k].argsort()[::-1][:9]]))

# %% [markdown]
# Does the largest topic of each document agree with the one that it was mostly drawn from?

# %%
largest, truth = shares.argmax(axis=1), documents.W.argmax(axis=1)
table = np.array([np.bincount(truth[largest == k], minlength=5) for k in range(5)])
purity = table.max(axis=1).sum() / table.sum()
nmi = normalized_mutual_info_score(truth, largest)
print(f"{100 * purity:.1f} % agree; normalized mutual information {nmi:.3f}")

# %%
figure, (left, right) = plt.subplots(
    1,
    2,
    num="Words of the five topics, and the documents by topic",
    layout="constrained",
    figsize=(8.4, 4.2),
    width_ratios=[1.15, 1],
)
for k in range(5):
    best = lift[:, k].argsort()[::-1][:5]
    heights = 6 * k + np.arange(5)
    left.barh(heights, 100 * topics[best, k], color=f"C{k}")
    for y, word in zip(heights, terms[best], strict=True):
        left.text(-0.1, y, word, ha="right", va="center", fontsize=7)
left.invert_yaxis()
left.set_yticks([])
left.spines["left"].set_visible(False)
left.set_xlabel("share of the topic's words, %")
columns = table.argmax(axis=1)
right.imshow(table[:, columns], cmap="Blues")
for k in range(5):
    for c in range(5):
        value = table[k, columns[c]]
        dark = value > table.max() / 2
        right.text(c, k, value, ha="center", va="center", color="white" if dark else "black")
right.set_xticks(range(5), documents.components[columns], rotation=25, ha="right")
right.set_yticks(range(5), [f"topic {k + 1}" for k in range(5)])
right.set_title("documents by largest topic, found and true")
right.spines[:].set_visible(False)
plt.show()
