"""Other packages that factorize one matrix many times, made to use `factorize_many`."""
