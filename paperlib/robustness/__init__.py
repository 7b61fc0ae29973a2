"""*Are All Layers Created Equal?*: resets of trained layers, alone and in groups, and distances."""
