"""Benchmarks: cases, contestants, measures, and the comparison of two versions."""
