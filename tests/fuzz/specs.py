"""Specifications to be tried: small dictionaries that JSON can hold, drawn by Hypothesis."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

Spec = dict[str, Any]

ENTRIES = {  # how often each is drawn
    "factorize": 30,
    "stack": 7,
    "many": 7,
    "fit_transform": 16,
    "transform": 12,
    "partial_fit": 5,
    "warm_start": 4,
    "save_load": 4,
    "nnf": 5,
    "nnf_fixed": 5,
    "custom_start": 2,
    "starting_point": 3,
    "command_line": 7,
}
WITHOUT_LOSS = ("custom_start", "starting_point")
LOSSES = {"frobenius": 45, "kullback-leibler": 20, "itakura-saito": 12, "other": 12}
BETAS = (1.5, 0.5, 3.0, -1.0, 2.5, 1.0001, -0.5, 5.0)
PLAIN = ("her", "ahead", "hals", "her-admm", "mu", "ao-admm", "ao-admm-trace", "cd")
GENERAL = ("newton", "mu", "mu-extrapolated", "hals", "ao-admm", "cd")
SOLVERS = tuple(sorted({"auto", *PLAIN, *GENERAL}))
STARTS = ("random", "nndsvd", "nndsvda", "nndsvdar", "rotated", "merged", "separable")
KINDS = (
    "random", "heavy", "low-rank", "low-rank", "duplicated", "dependent", "constant", "counts",
    "spike", "wide-range", "zero-lines", "diagonal", "binary", "smooth",
)  # fmt: skip
DENSE = ("C", "F", "strided", "reversed", "readonly", "list", "tensor", "tensor-T", "view")
SPARSE = (
    "csr", "csc", "coo", "bsr", "dia", "lil", "dok", "csr_array", "coo_array", "csc_array",
    "torch-coo", "torch-csr", "torch-csc",
)  # fmt: skip
REAL = ("float64", "float32")
OTHER_TYPES = ("int64", "int32", "uint8", "int8", "bool", "float16", "longdouble", ">f8")
FLAWS = ("nan", "inf", "-inf", "negative", "all-nan", "empty", "one-axis", "complex", "text")
BROKEN = (
    "index-high", "index-negative", "index-huge", "indptr-short", "indptr-down", "indptr-end",
    "data-short", "nan", "negative", "inf",
)  # fmt: skip
UNSORTED = ("unsorted", "duplicates", "explicit-zeros", "long-indices")
WEIGHTS = (0.0, 1e-12, 1e-3, 0.1, 1.0, 30.0, 1e6)
FORMATS = ("csv", "tsv", "npy", "npz", "npz-sparse", "mtx", "mat", "csv.gz")
DAMAGES = ("cut", "noise", "empty", "text-cell", "ragged", "nan-cell", "huge-cell")
WRONG = {
    "rank": [0, -1, 10**9, 10**20, 2.5, "3", None, True],
    "tol": [-1.0, float("nan"), "a", float("inf")],
    "max_iter": [-1, 2.5, "a", None],
    "time_limit": [0, -1.0, "a", float("nan"), float("inf")],
    "random_state": [-1, 2**70, "a", 1.5],
    "solver": ["", "hers", 3, None],
    "init": ["", "nndsvdx", 3, "custom"],
    "accelerator": ["", "x", 3, "nowhere.safetensors", "init-r10"],
    "loss": ["", "kl", float("nan"), float("inf"), 1e9, -1e9, None, True],
    "weights": ["negative", "nan", "wrong-shape", "all-zero", "huge", "tiny"],
    "mask": ["wrong-shape", "all-zero", "half"],
    "penalty": [["L1", -1.0], ["L1", float("inf")], ["L1", float("nan")], ["L1", "a"],
                ["Bounds", 1.0, 0.0], ["Bounds", float("nan"), 1.0], ["Simplex", -1.0, "rows"],
                ["Simplex", float("inf"), "rows"], ["Group", 1.0, "diagonals"], ["text"]],
}  # fmt: skip


def rarely(often: Any, otherwise: st.SearchStrategy[Any], one_in: int) -> st.SearchStrategy[Any]:
    """Mostly the same value, and once in a while another."""
    return st.integers(1, one_in).flatmap(lambda k: otherwise if k == one_in else st.just(often))


sizes = st.one_of(
    st.integers(1, 6), st.integers(1, 12), st.integers(2, 20), st.integers(4, 45), st.integers(1, 3)
)
shapes = st.integers(1, 40).flatmap(
    lambda k: (
        st.tuples(sizes, sizes)
        if k < 37
        else st.sampled_from([(60, 40), (40, 60), (300, 4), (3, 400), (120, 30)])
        if k < 40
        else st.sampled_from([(300, 200), (200, 300), (1000, 30)])
    )
)
exponents = st.one_of(
    st.just(0), st.just(0), st.just(0), st.integers(-6, 6), st.integers(-30, 30),
    st.sampled_from([-323, -308, -300, -170, -160, -150, -45, -38, 20, 37, 38, 100, 150, 160, 308]),
    st.integers(-323, 308),
)  # fmt: skip


@st.composite
def data(draw: Any) -> Spec:
    m, n = draw(shapes)
    sparse = draw(st.integers(1, 4)) == 4
    spec: Spec = {
        "kind": draw(st.sampled_from(KINDS)),
        "m": m,
        "n": n,
        "true_rank": draw(st.integers(1, 4)),
        "zeros": draw(rarely(0.8 if sparse else 0.0, st.sampled_from([0.3, 0.6, 0.95, 1.0]), 5)),
        "exponent": draw(exponents),
        "dtype": draw(rarely("float64", st.sampled_from(REAL[1:] * 8 + OTHER_TYPES), 2)),
        "layout": draw(st.sampled_from(SPARSE if sparse else DENSE)),
    }
    flaws = BROKEN + UNSORTED * 2 if sparse else FLAWS
    if flaw := draw(rarely(None, st.sampled_from(flaws), 5 if sparse else 16)):
        spec["flaw"] = flaw
    return spec


@st.composite
def penalties(draw: Any) -> list[Any]:
    weight = st.sampled_from(WEIGHTS)
    by = st.sampled_from(["rows", "columns"])
    names = ("L1", "L2", "L1", "L2", "Smooth", "Orthogonal")
    soft: list[Any] = [st.tuples(st.just(name), weight) for name in names]
    soft.append(st.tuples(st.just("Group"), weight, by))
    hard = [
        st.tuples(st.just("Simplex"), st.sampled_from([1.0, 1.0, 0.01, 100.0]), by),
        st.tuples(st.just("Bounds"), st.sampled_from([0.0, 0.0, 0.2, -1.0]),
                  st.sampled_from([0.5, 1.0, 3.0, float("inf")])),
        st.tuples(st.just("Free")),
        st.tuples(st.just("Fixed"), st.integers(1, 2)),
    ]  # fmt: skip
    chosen = draw(st.lists(st.one_of(*soft, *hard), min_size=1, max_size=2))
    return [list(term) for term in chosen]


@st.composite
def specs(draw: Any, entry: str, loss: str) -> Spec:
    """Any input: mostly one that should be answered, now and then one that should be refused."""
    spec: Spec = {"entry": entry, "seed": 0, "data": draw(data())}
    m, n = spec["data"]["m"], spec["data"]["n"]
    low = min(m, n)
    spec["rank"] = draw(
        st.one_of(st.integers(1, low), st.integers(1, min(low, 8)), st.integers(1, min(low, 8)),
                  st.integers(1, low + 5), rarely(2, st.integers(1, 100), 4))
    )  # fmt: skip
    special = loss != "frobenius" or draw(st.integers(1, 3)) == 3
    if loss != "frobenius":
        spec["loss"] = draw(st.sampled_from(BETAS)) if loss == "other" else loss
        if loss in ("itakura-saito", "other") and draw(st.integers(1, 6)) > 1:
            spec["data"]["positive"] = True
    if special and entry not in WITHOUT_LOSS:
        _special(draw, spec)
    named = (GENERAL if special else PLAIN) * 3 + SOLVERS
    if solver := draw(rarely(None, st.sampled_from(named), 2)):
        spec["solver"] = solver
    if init := draw(rarely(None, st.sampled_from((*STARTS, "custom", "custom", "init-r10")), 3)):
        spec["init"] = init
        if init == "custom":
            spec["start"] = [draw(rarely(0, st.integers(-300, 300), 5)),
                             draw(rarely(0.0, st.sampled_from([0.3, 1.0]), 5))]  # fmt: skip
        if init == "init-r10":
            spec["rank"] = 10
    networks = ("any-rank", "any-rank", "any-rank-admm", "accel-r10")
    if not special and (accelerator := draw(rarely(None, st.sampled_from(networks), 12))):
        spec["accelerator"] = accelerator
        spec["rank"] = 10 if accelerator == "accel-r10" else spec["rank"]
    spec["tol"] = draw(rarely(1e-4, st.sampled_from([0.0, 1e-8, 1e-2, 1e-6, 1e-12, 1.0]), 3))
    spec["max_iter"] = draw(st.sampled_from([200, 200, 200, 100, 50, 20, 5, 1, 0, 1000]))
    if loss != "frobenius":
        admm = spec.get("solver") == "ao-admm" or spec.get("on_w") or spec.get("on_h")
        spec["max_iter"] = min(spec["max_iter"], 20 if admm else 200)  # each takes long
        spec["rank"] = min(spec["rank"], 30)
    if limit := draw(rarely(None, st.sampled_from([1e-9, 1e-3, 0.02]), 25)):
        spec["time_limit"] = limit
    if draw(st.integers(1, 5)) == 5:
        spec["twice"] = True
    if entry in ("fit_transform", "transform", "partial_fit", "warm_start", "save_load", "nnf"):
        _estimator(draw, spec)
    if entry == "stack":
        spec["count"] = draw(st.integers(1, 4))
    if entry == "command_line":
        spec["file"] = draw(st.sampled_from(FORMATS))
        if damage := draw(rarely(None, st.sampled_from(DAMAGES), 4)):
            spec["damage"] = damage
    if draw(st.integers(1, 25)) == 25:
        key = draw(st.sampled_from(sorted(WRONG)))
        spec["wrong"] = [key, draw(st.sampled_from(WRONG[key]))]
    _cut_to_size(spec)
    return spec


def _cut_to_size(spec: Spec) -> None:
    """Fewer lines, components and iterations where an iteration is much work, and honest work.

    Weights or another loss cost r²/2 multiplications an entry and iteration, of which coding makes
    up to 500 with many sweeps; penalties cost ten rounds of ADMM an iteration. A rank that is left
    open is that of all columns. "ahead" makes up to 40 iterations in one.
    """
    told, words = spec["data"], spec.get("words", {})
    penalised = spec.get("on_w") or spec.get("on_h") or words.get("fixed")
    admm = spec.get("solver") == "ao-admm" or penalised
    general = admm or spec.get("loss") or spec.get("known")
    rank = told["n"] if "n_components" in spec else spec["rank"]
    if general and told["m"] * told["n"] * (rank**2 + 300 * bool(admm)) > 1e6:
        told["m"], told["n"] = min(told["m"], 45), min(told["n"], 45)
        spec["rank"] = min(spec["rank"], 10)
        spec.pop("n_components", None)
        spec["max_iter"] = min(spec["max_iter"], 100)
    if "n_components" in spec:  # exact coding takes r³ multiplications a row, and more
        told["n"] = min(told["n"], 60)
        told["m"] = told["n"] if spec.get("symmetric") else told["m"]
    elif told["m"] * told["n"] > 20_000:
        spec["rank"] = min(spec["rank"], 60)
    if admm or spec.get("solver") == "ahead":
        most = 200 if admm else 50
        spec["max_iter"] = min(spec["max_iter"], most // words.get("n_init", 1))


def _special(draw: Any, spec: Spec) -> None:
    """Draw what goes beyond plain least squares: unknown entries, weights, penalties, symmetry."""
    kinds = ("mask", "weights", "row-weights", "sigma", "nan", "zeros", "mask", "weights")
    if known := draw(rarely(None, st.sampled_from(kinds), 3)):
        spec["known"] = known
        if exponent := draw(rarely(0, st.sampled_from([-20, -5, 5, 20, 150, -150]), 6)):
            spec["weight_exponent"] = exponent
    slow = spec.get("loss") not in (None, "kullback-leibler")  # proximal steps by Newton's method
    for side in ("on_w", "on_h"):
        if draw(st.integers(1, 12 if slow else 4)) == 4:
            spec[side] = draw(penalties())
    if spec.get("loss") is None and draw(st.integers(1, 8)) == 8:
        spec["symmetric"] = True
        spec["data"]["n"] = spec["data"]["m"]
        for key in ("known", "on_w", "on_h"):
            spec.pop(key, None)


def _estimator(draw: Any, spec: Spec) -> None:
    words: Spec = {}
    for name, often, others in (
        ("n_init", 1, [2, 3]),
        ("order", "share", [None]),
        ("scale", "balanced", ["sum", None]),
        ("alpha_W", 0.0, [1e-3, 0.1, 1.0, 100.0]),
        ("alpha_H", "same", [0.0, 1e-2]),
        ("l1_ratio", 0.0, [0.5, 1.0]),
        ("fixed", 0, [1, 2]),
    ):
        value = draw(rarely(often, st.sampled_from(others), 8))
        if value != often:
            words[name] = value
    if words:
        spec["words"] = words
    if draw(st.integers(1, 12)) == 12:
        spec["n_components"] = draw(st.sampled_from([None, "auto"]))


def drawn(batch: int, count: int = 100) -> list[Spec]:
    """The inputs of a batch, the same each time.

    Hypothesis makes variations of what it has drawn, so few are taken from each of many seeds.
    """
    chance, found = random.Random(batch), []
    while len(found) < count:
        (entry,) = chance.choices([*ENTRIES], [*ENTRIES.values()])
        (loss,) = chance.choices([*LOSSES], [*LOSSES.values()])
        if entry in WITHOUT_LOSS:
            loss = "frobenius"
        found += _explored(specs(entry, loss), chance.randrange(2**62), 4)
    return [{**spec, "seed": 1000 * batch + k} for k, spec in enumerate(found[:count])]


def _explored(strategy: st.SearchStrategy[Spec], number: int, count: int) -> list[Spec]:
    found: list[Spec] = []

    @seed(number)
    @settings(
        max_examples=count + 1,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
    )
    @given(strategy)
    def collect(spec: Spec) -> None:
        found.append(spec)

    collect()
    return found[1:]  # the first is the simplest of all, whatever the seed
