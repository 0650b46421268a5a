"""Run a benchmark by its name, or list the names: `make bench`, `make bench NAME=kl`."""

from __future__ import annotations

import importlib
import sys
from typing import NamedTuple

OUT = "docs/results/benchmarks"
SEVERAL = ("races", "many")  # modules of more than one benchmark


class Benchmark(NamedTuple):
    """A benchmark: its module, what it answers, and whether its pages are of the site."""

    module: str
    answers: str
    kept: bool = False


BENCHMARKS = {
    "peers": Benchmark("races", "How soon is each package within 1 % of the best?", True),
    "kl": Benchmark("races", "The same for counts, under Kullback–Leibler.", True),
    "choices": Benchmark("races", "What is each automatic choice worth?", True),
    "stop": Benchmark("stop", "When should a run stop, and how far is it from its end then?"),
    "defaults": Benchmark("defaults", "What do default calls take beside scikit-learn, and leave?"),
    "tolerance": Benchmark("tolerance", "What does a smaller tolerance gain?", True),
    "optimum": Benchmark("optimum", "How near do calls come to the best of 40 starts?"),
    "many": Benchmark("many", "Many small problems, beside scikit-learn in processes."),
    "replicates": Benchmark("many", "Replicates of one matrix, beside single calls."),
    "transform": Benchmark("many", "Coefficients of new rows, beside scikit-learn and scipy."),
    "large": Benchmark("outofcore", "A pass over a file, and memory."),
    "passes": Benchmark("passes", "How many readings does data beyond memory take?"),
    "cost": Benchmark("cost_model", "What does a pass cost, by a model and measured?"),
    "workers": Benchmark("dask_workers", "Blocks on one and two Dask workers."),
    "scaling": Benchmark("scaling", "Time and memory against size, rank and threads.", True),
    "cold": Benchmark("cold", "What do import and the first call cost?", True),
    "limits": Benchmark("limits", "How long after their time limit do calls end?"),
    "newcomer": Benchmark("newcomer", "How long is it from a clone to a report?", True),
    "rank": Benchmark("rank.run", "How often are planted ranks found?"),
    "rank-answer": Benchmark("rank.reconcile", "Is the one answer right more often than a rule?"),
    "rank-report": Benchmark("rank.summary", "Table and picture of the answers of `rank`.", True),
    "loss": Benchmark("select_loss", "How often is planted noise named?"),
    "metaprograms": Benchmark("metaprograms", "How often are planted meta-programs found?"),
    "unmixing": Benchmark("unmixing", "Unmixing of Jasper Ridge, beside its reference."),
    "networks": Benchmark("races", "Where does a network pay in seconds?", True),
    "learned": Benchmark(
        "learned", "The any-rank network: ARGS=gain, safety, paper or optima.", True
    ),
    "any-rank": Benchmark("anyrank", "How many iterations does the any-rank network save?"),
    "ablation": Benchmark("ablation", "What is each part of the network worth?", True),
    "five": Benchmark("five", "Five iterations from a good start beside fifty of AO-ADMM."),
    "folded": Benchmark("folded_layer", "The folded Factormer layer beside the literal one."),
    "gpu": Benchmark("gpu", "Iterations on a GPU, recorded, and with a network.", True),
    "gpu-large": Benchmark("gpu_large", "Large matrices on a GPU, beside reading them.", True),
    "gpu-many": Benchmark("many_gpu", "Many small problems on a GPU."),
    "gpu-sweep": Benchmark("sweep", "Ranks and replicates of counts on a GPU."),
    "clients": Benchmark("clients.run", "cNMF and SigProfilerExtractor, as they are and patched."),
    "agree": Benchmark("clients.agree", "Does the consensus of patched cNMF agree with its own?"),
    "picture": Benchmark("readme_picture", "Error against seconds, the picture of the README."),
}


def main() -> None:
    """Run the module of the benchmark that is named first, with the other arguments."""
    name, *arguments = sys.argv[1:] or [""]
    if name not in BENCHMARKS:
        if name:
            print(f"there is no benchmark {name!r}", file=sys.stderr)
        for known, (_, answers, _) in BENCHMARKS.items():
            print(f"  make bench NAME={known:12s} {answers}")
        raise SystemExit(2 if name else 0)
    one = BENCHMARKS[name]
    if one.kept and "--out" not in arguments and "--help" not in arguments:
        arguments += ["--out", OUT]
    sys.argv = [f"bench {name}", *arguments]
    module = importlib.import_module(f"factormer_lab.bench.{one.module}")
    raise SystemExit(module.main(name) if one.module in SEVERAL else module.main())


if __name__ == "__main__":
    main()
