"""Losses, by their public name: subclass `Loss` to write your own (docs/losses.md)."""

from factormer.problem.loss import Loss as Loss
from factormer.problem.losses import Beta as Beta
