"""The mark of a layer in the papers' sense: what is named, reset, frozen and removed as one."""

from torch import nn


class Layer:
    """Mix-in: the module is one layer, named by its path in the network, and owns all inside it.

    For example `stage2.resblk1`: a whole residual block (*Are All Layers Created Equal?*, §2). A
    BatchNorm's γ, β and running statistics belong to the layer that the BatchNorm stands in.
    """


class Stack(Layer, nn.Sequential):
    """A layer whose modules run one after the other."""
