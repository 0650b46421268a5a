# %% [markdown]
# # Donors: programs that samples share
#
# Cells of several donors, factorized together, yield programs that are half biology and half donor.
# Factorized donor by donor, they yield programs to be compared: those that come back in several
# donors are *meta-programs*.
#
# The data are generated, so that the answer is known: six donors, 200 to 400 cells of each, 300
# genes. Three programs are in all donors, interferon response is in the four that were treated, and
# each of two donors has a program of its own.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import factormer

rng = np.random.default_rng(0)
KNOWN = {
    "T cells": ("IL7R CD3D CD3E TRAC LTB CD2", [0, 1, 2, 3, 4, 5]),
    "B cells": ("MS4A1 CD79A CD79B BANK1 CD37 IGHM", [0, 1, 2, 3, 4, 5]),
    "monocytes": ("LYZ CD14 S100A8 S100A9 FCN1 VCAN", [0, 1, 2, 3, 4, 5]),
    "interferon": ("ISG15 IFI6 MX1 IFIT1 IFIT3 OAS1", [2, 3, 4, 5]),
    "platelets": ("PPBP PF4 GNG11 SDPR NRGN TUBB1", [1]),
    "dividing": ("MKI67 TOP2A STMN1 PCNA TYMS CDK1", [4]),
}
genes = np.array(" ".join(names for names, _ in KNOWN.values()).split())
genes = np.r_[genes, [f"gene {j}" for j in range(len(genes), 300)]]
programs = 0.3 * rng.gamma(0.3, size=(len(KNOWN), 300))
for c in range(len(KNOWN)):
    programs[c, 6 * c : 6 * c + 6] += 8
    programs[c, rng.permutation(np.arange(36, 300))[:30]] += rng.gamma(2.0, size=30)

cells, donors = [], []
for d in range(6):
    has = [c for c, (_, where) in enumerate(KNOWN.values()) if d in where]
    own = programs[has] * rng.lognormal(0, 0.3, size=(len(has), 300))  # the donor's version
    use = rng.gamma(0.4, size=(int(rng.integers(200, 401)), len(has)))
    cells.append(rng.poisson(3 * use @ own))
    donors += [f"donor {d + 1}"] * len(use)
V = pd.DataFrame(np.concatenate(cells).astype(float), columns=genes)
print(f"{len(V)} cells of {len(set(donors))} donors, {V.shape[1]} genes")

# %% [markdown]
# One call fits every donor at every rank on random halves of its cells, keeps the programs on which
# the halves agree, and joins those of different donors that are alike.

# %%
found = factormer.metaprograms(V, donors, ranks=range(2, 8), loss="kullback-leibler")
print(found.reason)
print(found.table().round(2).to_string(index=False))

# %% [markdown]
# The genes that set each apart, strong in one meta-program and weaker in all others:

# %%
for name, telling in found.genes(6).items():
    print(f"{name}: {' '.join(telling)}")
print("alone:", ", ".join(sample for sample, _ in found.alone))

# %%
figure, ax = plt.subplots(
    num="Which donors have which meta-program: interferon response in the four that were treated",
    layout="constrained",
    figsize=(6.4, 2.8),
)
found.plot(ax)
plt.show()

# %% [markdown]
# The fourth meta-program is missing in donors 1 and 2, as planted. `found.usage(V)` has how much
# each cell uses each meta-program, and `factormer.tl.metaprograms(adata, "donor")` writes all of it
# into an AnnData.
