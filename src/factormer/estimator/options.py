"""The options of the estimator, in scikit-learn's terms and ours, translated for the engine.

Wrong values raise an error; where scikit-learn has a message, ours begins with its words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state

from factormer.data import Matrix
from factormer.data.intake import as_tensor, is_sparse
from factormer.data.keywords import as_rank, is_finite
from factormer.data.warn import warn
from factormer.problem.checks import check_zeros
from factormer.problem.loss import Loss
from factormer.problem.losses import NAMES, as_loss
from factormer.problem.penalties import L1, L2, Fixed, Penalties, Penalty

_REAL = (int, float, np.integer, np.floating)


def rank_of(n_components: Any, n_features: int, H: Any) -> int:
    """The number of components: for None and "auto", that of the start or of the features."""
    if n_components == "auto" and H is not None and np.ndim(H) == 2:
        return len(H)
    if n_components is None or n_components == "auto":
        return n_features
    if isinstance(n_components, str) and n_components == "select":
        raise ValueError(
            "n_components is 'select', which takes all rows at once: call fit, or pass a number "
            "to partial_fit"
        )
    try:
        return as_rank(n_components)
    except ValueError:
        raise ValueError(
            f"n_components is {n_components!r}; it must be a whole number of at least 1, "
            "None, 'auto' or 'select'"
        ) from None


def is_whole(value: Any) -> bool:
    """Whether this is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def seed_of(random_state: Any) -> int:
    """The number that a random state stands for."""
    if is_whole(random_state):
        return int(random_state)  # used directly, which is faster
    return int(check_random_state(random_state).randint(2**31 - 1))


def init_of(init: Any, rank: int, shape: tuple[int, int]) -> Any:
    """The start by the engine's name; None is scikit-learn's default."""
    if init is None:
        return "nndsvda" if rank <= min(shape) else "random"
    return init


def warn_of_zeros(solver: Any, init: Any) -> None:
    """Warn that multiplicative updates keep zeros of the start."""
    if solver == "mu" and init == "nndsvd":
        warn(
            "The multiplicative update ('mu') solver cannot update zeros present in the "
            "initialization, and so leads to poorer results when used jointly with init='nndsvd'. "
            "You may try init='nndsvda' or init='nndsvdar' instead.",
            UserWarning,
        )


def loss_of(beta_loss: Any, solver: Any) -> Loss:
    """The loss; coordinate descent takes only the squared error."""
    named = isinstance(beta_loss, Loss) or (isinstance(beta_loss, str) and beta_loss in NAMES)
    given: Any = beta_loss
    if not named and (isinstance(beta_loss, bool) or not is_finite(beta_loss)):
        raise ValueError(
            f"beta_loss is {beta_loss!r}; it must be 'frobenius', 'kullback-leibler', "
            "'itakura-saito' or a number"
        )
    loss = as_loss(given if named else float(given))
    if solver == "cd" and not loss.is_quadratic:
        raise ValueError(
            f"Invalid beta_loss parameter: solver 'cd' does not handle beta_loss = {beta_loss!r}; "
            "choose solver='auto' or 'mu'"
        )
    return loss


def check_poles(V: Matrix, loss: Loss) -> None:
    """Raise, in scikit-learn's words, if the loss forbids zeros and X has some."""
    try:
        check_zeros(V, loss)
    except ValueError as error:
        raise ValueError(
            f"When beta_loss <= 0 and X contains zeros, the solver may diverge. Here {error}"
        ) from None


class Asked(NamedTuple):
    """alpha_W, alpha_H and l1_ratio, with scikit-learn's meaning, and further penalties."""

    left: float
    right: float
    l1_ratio: float
    also_w: Penalties
    also_h: Penalties

    @staticmethod
    def read(options: Any) -> Asked:
        """Check the parameters of an estimator; alpha_H "same" is alpha_W."""
        alpha_W, alpha_H, l1_ratio = options.alpha_W, options.alpha_H, options.l1_ratio
        if isinstance(alpha_H, str) and alpha_H == "same":
            alpha_H = alpha_W
        elif not (is_finite(alpha_H) and float(alpha_H) >= 0):
            raise ValueError(f"alpha_H is {alpha_H!r}; it must be at least 0, or 'same'")
        if not (is_finite(alpha_W) and alpha_W >= 0):
            raise ValueError(f"alpha_W is {alpha_W!r}; it must be at least 0")
        if not isinstance(l1_ratio, _REAL) or not 0 <= l1_ratio <= 1:
            raise ValueError(f"l1_ratio is {l1_ratio!r}; it must be from 0 to 1")
        also_w = Penalties.of(getattr(options, "regularize_W", None), "regularize_W")
        also_h = Penalties.of(getattr(options, "regularize_H", None), "regularize_H")
        return Asked(float(alpha_W), float(alpha_H), float(l1_ratio), also_w, also_h)

    def on_W(self, n_features: int) -> Penalties:
        """alpha_W·n_features·(l1_ratio·‖W‖₁ + ½(1 − l1_ratio)·‖W‖²), and further penalties."""
        terms = self._elastic(self.left * n_features)
        return Penalties.of([*terms, *self.also_w.terms], "alpha_W with regularize_W")

    def on_H(self, n_samples: float | int, known: Known | None = None) -> Penalties:
        """Return the penalties on H, by the number of samples; known components stay."""
        terms = self._elastic(self.right * n_samples)
        if known is not None:
            terms.append(Fixed(known.rows.mT, known.mask))
        return Penalties.of([*terms, *self.also_h.terms], "alpha_H with regularize_H")

    def _elastic(self, weight: float) -> list[Penalty]:
        l1, l2 = weight * self.l1_ratio, weight * (1 - self.l1_ratio)
        return [kind(part) for kind, part in ((L1, l1), (L2, l2)) if part]


def start_array(values: Any, shape: tuple[int, int], name: str) -> np.ndarray | torch.Tensor:
    """A factor to start from, oriented as in scikit-learn, with its error messages."""
    where = f"NMF (input {name})"
    if values is None or is_sparse(values):
        raise ValueError(f"init='custom' needs {name} as a dense array of shape {shape}")
    array = values if isinstance(values, torch.Tensor) else np.asarray(values)
    if not isinstance(array, torch.Tensor) and array.dtype.kind not in "biuf":
        raise ValueError(f"{where} holds {array.dtype} values; it must hold real numbers")
    if array.ndim != 2:
        raise ValueError(f"{where} has {array.ndim} axes; it must have shape {shape}")
    for axis, place in enumerate(("first", "second")):
        if array.shape[axis] != shape[axis]:
            raise ValueError(
                f"Array with wrong {place} dimension passed to {where}: it has shape "
                f"{tuple(array.shape)}, and for this X it must have {shape}"
            )
    if bool((array < 0).any()):
        raise ValueError(f"Negative values in data passed to {where}: clip them at 0")
    if not bool((array != 0).any()):
        raise ValueError(f"Array passed to {where} is full of zeros: no iteration can leave them")
    return array


class Known(NamedTuple):
    """Rows of components_ that are to stay as they are, and which they are."""

    rows: torch.Tensor  # (k, n)
    mask: torch.Tensor  # (r,)

    @staticmethod
    def read(fixed: Any, rank: int, n_features: int, H: Any) -> Known | None:
        """From rows, which come first, or from a mask of the rows of a custom H."""
        if fixed is None:
            return None
        given = np.asarray(fixed.cpu() if isinstance(fixed, torch.Tensor) else fixed)
        if given.dtype == bool:
            if given.shape != (rank,) or H is None:
                raise ValueError(
                    f"fixed_components is a mask of shape {given.shape}; a mask must have one "
                    f"entry for each of the {rank} components, and go with init='custom' and an H "
                    "whose rows it marks"
                )
            mask = torch.from_numpy(given.copy())
            return Known(as_tensor(H, name="H", device=None)[mask.to(_device_of(H))], mask)
        if given.ndim != 2 or given.shape[1] != n_features:
            raise ValueError(
                f"fixed_components has shape {given.shape}; known components are rows of "
                f"{n_features} entries, one for each feature of X"
            )
        if not 1 <= len(given) <= rank:
            raise ValueError(
                f"fixed_components has {len(given)} rows and n_components is {rank}; it must "
                f"have from 1 to {rank} (raise n_components to learn others too)"
            )
        rows = as_tensor(fixed, name="fixed_components", device=None)
        if not bool(rows.isfinite().all()) or bool((rows < 0).any()):
            raise ValueError(
                "fixed_components has entries that are negative or not finite; known components "
                "must be at least 0"
            )
        return Known(rows, torch.arange(rank) < len(given))


def _device_of(H: Any) -> Any:
    return H.device if isinstance(H, torch.Tensor) else "cpu"


def check_forgetting(value: Any) -> None:
    """The weight of the past."""
    if not isinstance(value, _REAL) or not 0 < value <= 1:
        raise ValueError(
            f"forget_factor is {value!r}; it must be above 0 and at most 1 (1: forget nothing)"
        )


def check_share(name: str, value: Any) -> None:
    """A number from 0 to 1."""
    if not isinstance(value, _REAL) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"{name} is {value!r}; it must be a number from 0 to 1")


def check_count(name: str, value: Any) -> None:
    """A whole number of at least 1."""
    if not is_whole(value) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1")


def check_streamable(options: Any) -> None:
    """Only products of past rows are kept, which determine only the squared error."""
    asked = Asked.read(options)
    plain = asked.also_w.is_plain and asked.also_h.is_plain
    is_square = loss_of(options.beta_loss, options.solver).is_quadratic
    if not (is_square and plain and options.missing is None and not options.symmetric):
        raise ValueError(
            "partial_fit takes only the squared error, alpha_W and alpha_H; use fit for "
            "another beta_loss, missing entries, regularize_W, regularize_H or symmetric=True"
        )
