"""NMF, the scikit-learn estimator."""

from factormer.estimator.nmf import NMF as NMF
