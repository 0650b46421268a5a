"""The numbers by which "auto" decides: what each decides, and the command that measured it.

Timings were taken on two cores of an Intel Xeon unless a command says otherwise; docs/engine.md and
docs/losses.md have the tables.
"""

from __future__ import annotations

# Starts. `make bench NAME=choices`
SVD_PAYS = 20_000  # entries from which a singular value decomposition pays for a better start
FULL = 0.9  # share of min(m, n) from which rows or columns of V are the best start: fuzz-sklearn
TINY, TINY_RUNS = 400, 2  # entries up to which so many runs take hardly longer: fuzz-sklearn
SMALL_LOSS = 20_000  # stored entries up to which least squares fit a start first: NAME=kl

# Several runs side by side. `make bench NAME=optimum`
KINDS = ("rotated", "random", "merged")  # of starts, which take turns
TOGETHER = 10  # runs at once, of those that n_init asks for; their points are all in memory
CHILDREN = 0.4  # further runs that are made of the best, relative to those with starts of their own
KEPT = 0.4  # share of the runs that go on to their ends
GENERATION = 80  # iterations after which errors say which runs will end best, at most
LOSS_GENERATION = 20  # the same of Newton steps

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

# Data beyond memory. `make bench NAME=passes`
AT_HAND = 0.3  # passes, by their arithmetic, that iterations between two may cost if V is in memory
WIDTH = 4  # times the rank that a sketch is wide if readings cost more than arithmetic
PASSES = 10  # passes over V after those of the sketch, at most, if max_iter comes to that
LOSS_PASSES = 100  # the same for other losses, whose passes gain less
LAST_PASSES = 3  # the same with tol=0, where all of them are made

# Precision. `make bench NAME=choices`, and `make bench NAME=kl` for the second
SINGLE = 2e6  # multiplications of a product from which float32 is faster
SINGLE_LOSS = 2e7  # multiplications of a Newton half-step from which float32 repays compiling it

# Checks: Ctrl-C and watchers wait for about a tenth of a second
LOOKS = 2e8  # multiplications between two checks of clock and signals, unless a rule needs more
