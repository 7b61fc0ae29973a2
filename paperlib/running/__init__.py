"""How one notebook is run, reused, refused and checked; `paperlib.runner` is the command."""
