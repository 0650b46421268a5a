"""The numbers by which "auto" chooses start, stages and precision, and the commands behind them.

Each group of numbers names the command that measures what they are worth; docs/engine.md describes
the choices for the squared error, and docs/losses.md those for other losses. Numbers hold for the
reference unless their comment names the core. Timings were taken on two cores of an Intel Xeon
server processor.
"""

from __future__ import annotations

# Starts, for both engines. `make bench NAME=choices`; where it is named, `make fuzz-sklearn`
SVD_PAYS = 20_000  # entries from which a singular value decomposition pays for a better start
FULL = 0.9  # share of min(m, n) from which rows or columns of V are the best start: fuzz-sklearn
TINY, TINY_RUNS = 400, 2  # entries up to which two runs take hardly longer: fuzz-sklearn
SPARSE_FITS = 20  # iterations of least squares on the roots of sparse counts: NAME=kl
SMALL_LOSS = 20_000  # stored entries up to which least squares fit a start first: NAME=kl

# Several runs of n_init, for both engines. `make bench NAME=optimum`
KINDS = ("rotated", "nndsvdar", "random", "merged")  # of starts, which take turns
KEPT = 0.4  # share of the runs that the core makes to their ends
GENERATION = 80  # iterations, at most, after which errors tell which runs will end best
LOSS_GENERATION = 20  # the same in Newton steps
TOGETHER = 10  # runs that the reference makes at once, with all their points in memory
CHILDREN = 0.4  # runs that the reference makes of the best, per run with a start of its own

# Solvers. `make bench NAME=choices`
AHEAD = 6.0  # times the size of V̂ that V must have for iterations on V̂ to cost little
AHEAD_WORK = 6e6  # multiplications of an iteration up to which compiled ones are faster

# Sketches. `make bench NAME=choices`
SKETCH_PAYS = 2.0  # times fewer multiplications that an iteration on a sketch must take
SKETCH_WORTH = 1.5  # times the multiplications that a sketch costs, which it must save
POLISH = 4  # iterations on V itself after those on a sketch, if the limit comes to that

# The compiled core. `make bench NAME=choices`
CORE_SINGLE = 5_000  # stored entries from which float32 saves a good part of a call
CORE_SKETCH = 100_000  # entries from which a sketch may pay
CORE_SKETCH_PAYS = 2.0  # times fewer multiplications that a product with it must take

# Newton steps: sweeps over coordinates, and growth of the extrapolation. `make bench NAME=kl`
STEPS = 4, 1.05
BOLD = 6, 1.1  # on dense counts, where they save iterations

# Data beyond memory. `make bench NAME=passes`
AT_HAND = 0.3  # passes, by their arithmetic, that iterations between two may cost if V is in memory
WIDTH = 4  # times the rank that a sketch is wide if readings cost more than arithmetic
PASSES = 10  # passes over V after those of the sketch, at most, if max_iter comes to that
LOSS_PASSES = 100  # the same for other losses, whose passes gain less
LAST_PASSES = 3  # the same with tol=0, where all of them are made

# Precision. `make bench NAME=choices`
SINGLE = 2e6  # multiplications of a product from which float32 is faster

# Checks: Ctrl-C and watchers wait for about a tenth of a second
LOOKS = 2e8  # multiplications between two checks of clock and signals, unless a rule needs more
