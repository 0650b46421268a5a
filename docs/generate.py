"""Pages generated from the project itself: the cards of its networks, and its benchmarks.

`conf.py` calls `write_pages` at every build, so that the site is always up to date. The pages go to
`docs/generated`, which is not under version control.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from factormer.nn.anyfactormer import AnyFactormerConfig
from factormer.nn.anyrank import AnyRankConfig
from factormer.nn.factormer import ModelConfig
from factormer.nn.rank import RankConfig
from factormer.nn.zoo import Card, models


class Benchmark(NamedTuple):
    """A benchmark: the stem of its files, its name in `make bench`, and what it answers."""

    stem: str
    target: str
    title: str
    question: str


BENCHMARKS = (
    Benchmark("peers", "peers", "Other packages", "How long to within 1 % and 0.1 %?"),
    Benchmark("kl", "kl", "Kullback–Leibler", "The same for counts, against scikit-learn."),
    Benchmark("tolerance", "tolerance", "Tolerances", "What does a smaller `tol` gain?"),
    Benchmark("ablation", "ablation", "The any-rank network", "What does each part gain?"),
    Benchmark("gpu", "gpu", "On a GPU", "What do recorded iterations and a network gain?"),
    Benchmark(
        "learned-gain",
        "learned ARGS=gain",
        "The network, and looking ahead",
        "Iterations and seconds on V itself, all from one start.",
    ),
    Benchmark(
        "learned-paper",
        "learned ARGS=paper",
        "The paper's validation sets",
        "Ten iterations of each engine against a hundred of AO-ADMM.",
    ),
    Benchmark(
        "learned-safety",
        "learned ARGS=safety",
        "Ranks 2 to 100, sizes 10×10 to 20 000×5 000",
        "Is the network ever worse than no network?",
    ),
    Benchmark(
        "learned-optima",
        "learned ARGS=optima",
        "Where runs end",
        "One default run against ten of scikit-learn from random starts.",
    ),
    Benchmark("rank", "rank", "Planted ranks", "How often are they found, and by whom?"),
    Benchmark("scaling", "scaling", "Scaling", "Time and memory against size and threads."),
    Benchmark("newcomer", "newcomer", "From a clone to a report", "How long is the wait?"),
    Benchmark("cold", "cold", "The first call", "What do import and compilation cost?"),
)
ROLES = {
    "init": "gives the start; `factorize(V, {rank}, init={name!r})`",
    "accelerator": "proposes points on the way; `factorize(V, {rank}, accelerator={name!r})`",
    "model": "chooses the rank; `select_rank(V, model={name!r})`",
}
NETWORKS = {
    ModelConfig: "Factormer",
    AnyRankConfig: "any-rank network",
    RankConfig: "Transformer over ranks",
    AnyFactormerConfig: "Factormer for every rank",
}
LIMITS = {
    "any-rank-init": "Pays in `factorize_many` on a GPU at ranks 12 to 32, where fits are slow. On "
    "real data and a CPU it is mostly a better start than the rotated SVD, and a slower one.",
    "init-r10": "Trained on products of exponential factors. On real data it can be a worse start "
    "than the rotated SVD, and it costs as much as a hundred iterations or more.",
    "init-r10-paper": "The paper's own layers on the paper's kind of data, by our recipe: at once "
    "as good as thirty iterations of AO-ADMM there, and on Yale and Jasper Ridge as good as three. "
    "One seed was trained. It costs as much as a hundred iterations or more.",
    "accel-r10-paper": "The paper's own layers on the paper's kind of data, by our recipe. One "
    "seed was trained. Each of its five proposals costs as much as a hundred iterations or more.",
    "accel-r10": "It saves many iterations on data like that of its training; in seconds "
    "the plain solver wins on a CPU.",
    "any-rank": "Trained over HALS, the engine's half-step on a CPU; it saves iterations over ADMM "
    "too. In seconds it gains where iterations are many, as on faces and spectra at ranks from 30 "
    'on, and loses elsewhere: `accelerator="auto"` asks it in runs that prove to be slow.',
    "rank": "Trained on planted ranks alone. Where components coincide, or are weaker than noise, "
    "it finds fewer than were planted; `choice.clear` is then mostly false.",
    "any-rank-kl": "Trained under Kullback–Leibler, over multiplicative updates and Newton steps. "
    "It saves more than half of the former, and hardly any of the latter.",
    "any-rank-admm": "Trained over ADMM half-steps, for stacks and GPUs. Over HALS it gains "
    "almost nothing.",
}


def write_pages(docs: Path) -> None:
    """Write the generated pages of the site."""
    folder = docs / "generated"
    (folder / "fragments").mkdir(parents=True, exist_ok=True)
    _write(folder / "models.md", "\n".join(model_cards(models())))
    fragment = "\n".join(benchmark_sections(docs / "results" / "benchmarks"))
    _write(folder / "fragments" / "benchmarks.md", fragment)


def _write(path: Path, text: str) -> None:
    """Write only if the text differs, so that a second build has nothing to do."""
    if not path.is_file() or path.read_text("utf-8") != text + "\n":
        path.write_text(text + "\n", "utf-8")


def model_cards(cards: Mapping[str, Card]) -> Iterator[str]:
    """The lines of the page of model cards."""
    yield "# Model cards\n"
    yield "The networks that ship with the package, from the cards in their files; the command"
    yield "`factormer models NAME` prints the same. A file is safetensors with a JSON header:"
    yield "loading it executes nothing.\n"
    for name, card in cards.items():
        yield from _model_card(name, card)


def _model_card(name: str, card: Card) -> Iterator[str]:
    rank = card.config.rank if isinstance(card.config, ModelConfig) else "r"
    role = ROLES[card.use].format(name=name, rank=rank)
    yield f"## {name}\n\nVersion {card.version}. {card.ranks.capitalize()}; {role}.\n"
    yield f"{LIMITS.get(name, '')}\n\n| | |\n| --- | --- |"
    network = NETWORKS[type(card.config)]
    yield f"| network | {network}; {_inline(vars(card.config))} |"
    facts = card.course
    options, before = facts.pop("options", {}), facts.pop("begun from", None)
    for key, value in facts.items():
        yield f"| {key} | {_inline(value)} |"
    if before:
        yield f"| begun from | {_lineage(before)} |"
    yield "\n<details><summary>Options of the training</summary>\n"
    yield f"{_inline(options)}\n\n</details>\n"
    for title, value in card.figures.items():
        yield from _figures(title, value)


def _lineage(training: Mapping[str, Any]) -> str:
    """The runs that a network was begun from, the latest first."""
    run = f"{training['name']} ({training['steps']} steps on {training['device']})"
    earlier = training.get("begun from")
    return f"{run}, begun from {_lineage(earlier)}" if earlier else run


def _figures(title: str, value: Any) -> Iterator[str]:
    """A nested table as a Markdown one, anything else as a line."""
    if not isinstance(value, Mapping):
        yield f"**{_sentence(title)}**: {_inline(value)}\n"
        return
    yield f"**{_sentence(title)}**\n"
    is_nested = all(isinstance(v, Mapping) for v in value.values())
    rows = [{"": label, **row} for label, row in value.items()] if is_nested else [value]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    yield "| " + " | ".join(str(column) for column in columns) + " |"
    yield "|" + " --- |" * len(columns)
    for row in rows:
        yield "| " + " | ".join(_inline(row.get(c, "")) for c in columns) + " |"
    yield ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _inline(value: Any) -> str:
    """A value in one cell of a table."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_inline(v)}" for k, v in value.items() if v not in ("", None))
    if isinstance(value, list | tuple):
        return ", ".join(_inline(v) for v in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("|", "\\|")


def benchmark_sections(folder: Path) -> Iterator[str]:
    """A section for each benchmark: its tables and picture, or how to run it."""
    for benchmark in BENCHMARKS:
        yield f"## {benchmark.title}\n\n{benchmark.question} `make bench NAME={benchmark.target}`\n"
        tables, picture = (folder / f"{benchmark.stem}{end}" for end in (".md", ".png"))
        if tables.is_file():
            text = re.sub(r"^# .*\n", "", tables.read_text("utf-8"))
            yield re.sub(r"^(#+) ", r"#\1 ", text, flags=re.MULTILINE)
        if picture.is_file():
            yield f"![{benchmark.title}](results/benchmarks/{picture.name})\n"
        if numbers := sorted(folder.glob(f"{benchmark.stem}.json")):
            yield f"The numbers: `docs/results/benchmarks/{numbers[0].name}`.\n"
        elif not (tables.is_file() or picture.is_file()):
            yield "It has not been run for this version of the page.\n"
