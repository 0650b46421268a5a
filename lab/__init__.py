"""The folder of factormer-lab, by which its tests import each other as `lab.tests`."""
