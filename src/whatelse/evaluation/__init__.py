"""How good a model is: comparisons, the paper's experiment, a report."""
