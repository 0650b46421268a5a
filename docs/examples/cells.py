# %% [markdown]
# # Single cells: gene programs
#
# Each of 700 blood cells is a row of gene activities. A component is a program, a set of genes
# that are active together, and W says how much of each program a cell uses: a T cell that
# divides uses two.
#
# The data are scanpy's `pbmc68k_reduced` (BSD-3; Zheng et al., 2017), log-normalized, as a sparse
# matrix `pbmc68k_reduced_log.npz` with genes and cell types in `….meta.npz`, in the folder that
# `FACTORMER_DATA` names. The cell types come from sorted reference cells; the factorization does
# not see them.

# %%
import numpy as np
import scipy.sparse
from drawing import grid, save

import factormer
from factormer.datasets import data_folder

X = scipy.sparse.load_npz(data_folder() / "pbmc68k_reduced_log.npz").astype(np.float64)
meta = np.load(data_folder() / "pbmc68k_reduced_log.meta.npz")
genes, labels, names = meta["genes"], meta["labels"], meta["label_names"]

est = factormer.NMF(n_components=10, random_state=0)
W = est.fit_transform(X)
print(f"{X.shape[0]} cells, {X.shape[1]} genes, {100 * X.nnz / np.prod(X.shape):.0f} % not 0")

# %% [markdown]
# Marker genes of a program: strong in it, and weaker in all others.

# %%
size = np.linalg.norm(est.components_, axis=1, keepdims=True)
programmes, use = est.components_ / size, W * size.T
use /= use.max(axis=0)
by_type = np.array([use[labels == c].mean(axis=0) for c in range(len(names))])  # types × programmes
margin = [p - np.delete(programmes, k, axis=0).max(axis=0) for k, p in enumerate(programmes)]
markers = [genes[m.argsort()[::-1][:6]] for m in margin]
for k in by_type.argmax(axis=0).argsort():
    print(f"{names[by_type[:, k].argmax()]:>28}: {' '.join(markers[k])}")

# %% [markdown]
# MS4A1 and CD79B are textbook markers of B cells, GNLY and PRF1 of natural killers, FCER1A
# and CLEC10A of dendritic cells, FCGR3A and CFD of monocytes, CD8A and GZMK of cytotoxic T cells,
# CCR7 of naive ones; IGJ and MZB1 mark plasma cells, and STMN1 and HMGB2 dividing ones, which have
# no label of their own here.

# %%
order = by_type.argmax(axis=0).argsort()
figure, axes = grid(1, 1, width=8.4, height=3.9)
ax = axes[0, 0]
drawn = ax.imshow(by_type[:, order], cmap="Blues", aspect="auto")
ax.set_yticks(range(len(names)), [f"{n} ({(labels == c).sum()})" for c, n in enumerate(names)])
ax.set_xticks(range(10), [", ".join(markers[k][:2]) for k in order], rotation=30, ha="right")
ax.spines[:].set_visible(False)
ax.set_title("how much the cells of a type use each programme (mean, beside the largest use)")
figure.colorbar(drawn, ax=ax, shrink=0.8)
save(
    figure,
    "cells.png",
    "Use of the ten programmes by cell type; a programme is named by its two first markers",
)
