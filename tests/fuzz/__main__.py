"""Try inputs until time is up: python -m tests.fuzz --seconds 600 --jobs 2 --out build/fuzz."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tests.fuzz.campaign import Campaign, judged_again, replayed, say
from tests.fuzz.peer import report
from tests.fuzz.state import State, keep

REGRESSIONS = Path(__file__).parent / "regressions"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--jobs", type=int, default=2, help="workers; one core each")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="state and summary")
    parser.add_argument("--cap", type=float, default=20.0, help="seconds an input may take")
    parser.add_argument("--sklearn", type=int, metavar="N", help="compare N inputs with its NMF")
    parser.add_argument("--replay", type=Path, nargs="+", help="judge these files again")
    parser.add_argument("--again", action="store_true", help="judge the kept failures again")
    parser.add_argument("--keep", action="store_true", help="write failures as regression cases")
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # which workers inherit: one core each
    state = State(options.out)
    if options.replay:
        return replayed(options.replay, options.cap)
    if options.again:
        return judged_again(state, options.cap)
    if options.keep:
        for kind in state.failures.values():
            spec, outcome = kind["examples"][0]
            say(str(keep(spec, outcome, REGRESSIONS)))
        return 0
    if options.sklearn:
        return report(options.sklearn, options.jobs, options.cap, options.out)
    Campaign(state, jobs=options.jobs, seconds=options.seconds, cap=options.cap).run()
    text = state.summary()
    (options.out / "summary.txt").write_text(text + "\n")
    say("\n" + text)
    return int(bool(state.failures))


if __name__ == "__main__":
    raise SystemExit(main())
