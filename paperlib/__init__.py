"""A reproducible companion to two papers on ReLU networks."""
