"""What is to be solved: a matrix, a rank, a loss and penalties."""
