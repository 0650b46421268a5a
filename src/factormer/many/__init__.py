"""Many factorizations at once: of many matrices, or of one at many ranks and from many starts."""
