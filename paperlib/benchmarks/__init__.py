"""Ours against the plain way, in time and memory: what `make bench` measures."""
