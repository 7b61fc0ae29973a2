"""Training: real data, recipes, the loop, and the store of trained runs."""
