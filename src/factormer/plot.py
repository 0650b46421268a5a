"""Pictures of components and traces, by their public name."""

from factormer.app.plot import component_images as component_images
from factormer.app.plot import convergence as convergence
