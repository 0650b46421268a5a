"""Training, figures and benchmarks: programs that use factormer and are not shipped with it."""
