# %% [markdown]
# # Single cells: gene programs
#
# Each of 700 blood cells is a row of gene activities. A component is a program, a set of genes
# that are active together, and W says how much of each program a cell uses: a T cell that
# divides uses two.
#
# The data are `pbmc68k_reduced` (Zheng et al., 2017), log-normalized, which come with scanpy (`pip
# install scanpy`, BSD-3-Clause). The cell types come from sorted reference cells; the factorization
# does not see them.

# %%
import matplotlib.pyplot as plt
import numpy as np
import scanpy

import factormer

data = scanpy.datasets.pbmc68k_reduced()
X, genes = data.raw.X.astype(np.float64), data.raw.var_names.to_numpy()
labels, names = data.obs["bulk_labels"].cat.codes.to_numpy(), data.obs["bulk_labels"].cat.categories

est = factormer.NMF(n_components=10, random_state=0)
W = est.fit_transform(X)
print(f"{X.shape[0]} cells, {X.shape[1]} genes, {100 * X.nnz / np.prod(X.shape):.0f} % not 0")

# %% [markdown]
# Marker genes of a program: strong in it, and weaker in all others.

# %%
size = np.linalg.norm(est.components_, axis=1, keepdims=True)
programs, use = est.components_ / size, W * size.T
use /= use.max(axis=0)
by_type = np.array([use[labels == c].mean(axis=0) for c in range(len(names))])  # types × programs
margin = [p - np.delete(programs, k, axis=0).max(axis=0) for k, p in enumerate(programs)]
markers = [genes[m.argsort()[::-1][:6]] for m in margin]
for k in by_type.argmax(axis=0).argsort():
    print(f"{names[by_type[:, k].argmax()]:>28}: {' '.join(markers[k])}")

# %% [markdown]
# MS4A1 and CD79B are textbook markers of B cells, GNLY and NKG7 of natural killers, FCER1A and
# CLEC10A of dendritic cells, FCGR3A and CFD of monocytes, IL7R of T cells; IGJ and MZB1 mark plasma
# cells, and STMN1, HMGB2 and PCNA dividing ones, which have no label of their own here.

# %%
order = by_type.argmax(axis=0).argsort()
figure, ax = plt.subplots(
    num="Use of the ten programs by cell type; a program is named by its first two markers",
    layout="constrained",
    figsize=(8.4, 3.9),
)
drawn = ax.imshow(by_type[:, order], cmap="Blues", aspect="auto")
ax.set_yticks(range(len(names)), [f"{n} ({(labels == c).sum()})" for c, n in enumerate(names)])
ax.set_xticks(range(10), [", ".join(markers[k][:2]) for k in order], rotation=30, ha="right")
ax.spines[:].set_visible(False)
ax.set_title("mean use of each program by the cells of a type, relative to its largest use")
figure.colorbar(drawn, ax=ax, shrink=0.8)
plt.show()
