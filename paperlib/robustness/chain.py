"""A private copy of a network, cut into a chain of modules, whose tensors can be exchanged."""

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paperlib.robustness.resets import canonical, check_same, is_statistic

# Modules whose output is new memory.
MAKERS = (nn.Linear, nn.Conv2d, nn.BatchNorm1d, nn.BatchNorm2d)


class Chain:
    """A copy of `model` in eval mode; the model itself is never touched.

    `elements`, run one after the other, are the model: an nn.Sequential is taken apart, nested
    ones too, and any other module is one element. `slots` are the parameters and buffers by
    canonical name, `position` says from which element on each is used. States and inputs are laid
    out as `layout` says, once `lay_out` has chosen.
    """

    def __init__(self, model: nn.Module) -> None:
        self.root = copy.deepcopy(_unwrapped(model)).eval()
        _rectify_in_place(self.root)
        self.slots: dict[str, Tensor] = canonical(self.root.state_dict(keep_vars=True))
        floating = [slot for slot in self.slots.values() if slot.is_floating_point()]
        if not floating:
            raise ValueError("the model has no parameters: there is nothing to reset.")
        self.device, self.dtype = floating[0].device, floating[0].dtype
        self.layout = torch.preserve_format
        self.elements = _elements(self.root)
        first: dict[int, int] = {}  # tensor's identity -> element
        for i, element in enumerate(self.elements):
            for tensor in (*element.parameters(), *element.buffers()):
                first.setdefault(id(tensor), i)
        self.position = {name: first.get(id(slot), 0) for name, slot in self.slots.items()}

    @torch.no_grad()
    def lay_out(self, image: Tensor) -> None:
        """Choose channels-last memory, with which convolutions are faster, if that can be.

        It cannot where the network, given a batch of one `image`, makes a view that needs another
        layout. Networks without convolutions stay as they are.
        """
        if all(slot.ndim != 4 for slot in self.slots.values()):
            return
        self.layout = torch.channels_last
        own = {name: self._laid(slot.detach()) for name, slot in self.slots.items()}
        try:
            with self.holding(own):
                self.rest(self.placed(image), 0)
        except RuntimeError:
            self.layout = torch.preserve_format

    def fitted(self, state: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
        """A state under this network's names, dtypes and devices; ValueError if it does not fit.

        Parameters may share memory with `state`; buffers, which modules may write to, do not.
        """
        state = canonical(state)
        check_same(state, self.slots, what)
        return {
            name: self._laid(state[name].detach().to(slot, copy=not isinstance(slot, nn.Parameter)))
            for name, slot in self.slots.items()
        }

    @contextmanager
    def holding(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Put `tensors` in place for as long as the context lasts."""
        before = {name: self.slots[name].data for name in tensors}
        for name, tensor in tensors.items():
            self.slots[name].data = tensor
        try:
            yield
        finally:
            for name, tensor in before.items():
                self.slots[name].data = tensor

    def placed(self, inputs: Tensor) -> Tensor:
        """A copy of `inputs` on the network's device, and in its dtype if they are floating."""
        dtype = self.dtype if inputs.is_floating_point() else inputs.dtype
        return self._laid(inputs.to(self.device, dtype, copy=True))

    def rest(self, inputs: Tensor, start: int) -> Tensor:
        """The output for `inputs` of the element `start`, which it and those after it make."""
        for element in self.elements[start:]:
            inputs = element(inputs)
        return inputs

    @torch.no_grad()
    def statistics(
        self, state: Mapping[str, Tensor], images: Tensor, batch: int
    ) -> dict[str, Tensor]:
        """BatchNorm's running statistics of `state`, averaged anew over batches of `images`."""
        anew = {
            name: torch.ones_like(slot) if name.endswith("running_var") else torch.zeros_like(slot)
            for name, slot in self.slots.items()
            if is_statistic(name)
        }
        norms = [module for module in self.root.modules() if isinstance(module, _BatchNorm)]
        with self.holding({**state, **anew}):
            for norm in norms:
                norm.momentum = None  # a plain average, not one that forgets
                norm.train()
            # Nearly equal parts, since each counts the same whatever its size.
            for part in images.tensor_split(math.ceil(len(images) / batch)):
                self.rest(self.placed(part), 0)
            for norm in norms:
                norm.eval()
        return anew

    def _laid(self, tensor: Tensor) -> Tensor:
        """The same values in this network's layout, if they are of images or convolutions."""
        return tensor.to(memory_format=self.layout) if tensor.ndim == 4 else tensor


def _unwrapped(model: nn.Module) -> nn.Module:
    """The network inside the wrappers of torch.compile and of data parallelism."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while True:
        inner = getattr(model, "_orig_mod", model.module if isinstance(model, wrappers) else None)
        if inner is None:
            return model
        model = inner


def _elements(module: nn.Module) -> list[nn.Module]:
    if not _is_chain(module) or _has_hooks(module):
        return [module]
    # Iterated as nn.Sequential does: `children()` would leave out a module that comes twice.
    return [element for child in module for element in _elements(child)]


def _is_chain(module: nn.Module) -> bool:
    """Whether the module does no more than run its parts one after the other."""
    return (
        type(module).forward is nn.Sequential.forward
        and type(module).__call__ is nn.Sequential.__call__
        and "forward" not in vars(module)
    )


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _rectify_in_place(root: nn.Module) -> None:
    """Let a ReLU write to its input where that is new and nobody else's: fewer bytes to move.

    The bits stay the same, and up to a quarter of a convolutional network's time is saved.
    """
    for chain in [module for module in root.modules() if _is_chain(module)]:
        for i, (maker, relu) in enumerate(pairwise(chain), start=1):
            known = type(maker) in MAKERS and type(relu) is nn.ReLU
            if known and not _has_hooks(maker) and not _has_hooks(relu):
                chain[i] = nn.ReLU(inplace=True)  # another one, since this may stand elsewhere too
