"""Tests of the training of the Factormer for every rank."""
