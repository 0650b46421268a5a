"""What is made with factormer but not shipped with it: training, figures, benchmarks."""
