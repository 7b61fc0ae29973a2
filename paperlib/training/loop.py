"""The training loop: images as tensors, without workers, and every draw keyed by (seed, epoch).

Nothing random outlives an epoch, so a checkpoint at its end is all that a training needs to go on
exactly as if it had never stopped: weights, buffers and momentum.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paperlib import networks, progress
from paperlib.choices import check_choice
from paperlib.networks import laws
from paperlib.training import data
from paperlib.training.data import Images
from paperlib.training.feeding import Feed
from paperlib.training.recipe import Recipe, lr_at

# Stands for what this package makes of a spec; raise it when the same spec gives other numbers.
VERSION = 1

CHECK_EVERY = 100  # steps between two looks at the loss, each of which waits for the device
_AUGMENT, _NETWORK = 2, 3  # keys of random streams, apart from the order of the images


class Diverged(ArithmeticError):
    """A training whose loss or weights are no longer finite."""


@dataclass(frozen=True)
class Checkpoint:
    """A training after `epoch` whole epochs, as clones on the CPU that later steps leave alone.

    Attributes:
        epoch: 0 is at initialisation.
        model: the state dict.
        momentum: the optimiser's buffers by trained parameter.
        row: what the last epoch was like: epoch, lr, loss, accuracy (means over the training
            images while they were being learned) and seconds. Empty at epoch 0.
    """

    epoch: int
    model: dict[str, Tensor]
    momentum: dict[str, Tensor]
    row: dict[str, float]


def train(
    model: nn.Module,
    images: Images,
    recipe: Recipe,
    seed: int,
    *,
    start_state: Checkpoint | None = None,
    on_epoch: Callable[[Checkpoint], None] | None = None,
    label: str = "training",
) -> None:
    """Train `model` in place, on the device where it is, to classify `images`.

    On one machine's CPU the result is a function of the arguments alone, bit for bit, whether the
    training was interrupted or not. Frozen parameters no longer require gradients afterwards, and
    the model is left in eval mode.

    Args:
        model: uint8 images scaled to [0, 1], `(N, C, H, W)` float32, to logits `(N, classes)`.
        seed: of the order of the images, of augmentation, and of dropout and the like.
        start_state: where to go on; None starts with the model as it is.
        on_epoch: called with a checkpoint at epoch 0, unless there is a `start_state`, and after
            every epoch.
        label: what progress lines start with.

    Raises:
        ValueError: a frozen layer that the model does not have, or nothing left to train.
        Diverged: the loss or a weight is not finite.
    """
    device = next(model.parameters()).device
    model.to(memory_format=torch.channels_last)  # convolutions are faster; others have no channels
    trained = _trained(model, recipe)
    optimiser = _Optimiser(trained, recipe)
    if start_state is None:
        if on_epoch is not None:
            on_epoch(_checkpoint(0, model, optimiser, {}))
    else:
        model.load_state_dict(start_state.model)
        optimiser.resume(start_state.momentum)

    feed = Feed(images, device)
    first = start_state.epoch if start_state else 0
    row: dict[str, float] = {}

    def note() -> str:
        return f"loss {row['loss']:.4f}, accuracy {row['accuracy']:.3f}" if row else ""

    model.train()
    with _threads(recipe.threads):
        for epoch in progress.track(range(first, recipe.epochs), f"{label}: epochs", note):
            start = time.perf_counter()
            loss, accuracy = _epoch(model, optimiser, feed, recipe, seed, epoch)
            row = {
                "epoch": epoch + 1,
                "lr": lr_at(recipe, epoch),
                "loss": loss,
                "accuracy": accuracy,
                "seconds": time.perf_counter() - start,
            }
            if on_epoch is not None:
                on_epoch(_checkpoint(epoch + 1, model, optimiser, row))
    model.eval()


def _trained(model: nn.Module, recipe: Recipe) -> dict[str, nn.Parameter]:
    """The parameters to train, by name; those of frozen layers stop requiring gradients."""
    frozen: set[str] = set()
    if recipe.frozen:
        layers = networks.layers(model)
        for layer in recipe.frozen:
            frozen.update(layers[check_choice("layer to freeze", layer, layers)])
    trained = {}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
        if name not in frozen:
            trained[name] = parameter
    if not trained:
        raise ValueError("every layer is frozen: leave at least one to train.")
    return trained


class _Optimiser:
    """torch.optim.SGD on named parameters, with its momentum by name."""

    def __init__(self, parameters: dict[str, nn.Parameter], recipe: Recipe) -> None:
        self.parameters = parameters
        self._sgd = torch.optim.SGD(
            parameters.values(),
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            foreach=True,
        )

    def step(self, lr: float) -> None:
        """One step with the gradients, which are then forgotten."""
        self._sgd.param_groups[0]["lr"] = lr
        self._sgd.step()
        self._sgd.zero_grad()

    @property
    def momentum(self) -> dict[str, Tensor]:
        """The buffers by parameter; those that no step has made yet are left out."""
        state = self._sgd.state
        buffers = {n: state[p].get("momentum_buffer") for n, p in self.parameters.items()}
        return {name: buffer for name, buffer in buffers.items() if buffer is not None}

    def resume(self, momentum: Mapping[str, Tensor]) -> None:
        """Go on with copies of the buffers that `momentum` once gave."""
        for name, buffer in momentum.items():
            parameter = self.parameters[name]
            own = torch.empty_like(parameter, requires_grad=False).copy_(buffer)
            self._sgd.state[parameter]["momentum_buffer"] = own


def _epoch(
    model: nn.Module,
    optimiser: _Optimiser,
    feed: Feed,
    recipe: Recipe,
    seed: int,
    epoch: int,
) -> tuple[float, float]:
    """One pass over the images: mean loss and accuracy on the way."""
    device, count = feed.device, len(feed.labels)
    order = data.epoch_order(count, seed, epoch)
    crops = laws.generator(seed, _AUGMENT, epoch)
    parameters = list(optimiser.parameters.values())
    steps = math.ceil(count / recipe.batch_size)
    losses = torch.zeros((), dtype=torch.float64, device=device)
    hits = torch.zeros((), dtype=torch.int64, device=device)
    with _global_seed(seed, epoch, device):
        for step, (batch, targets) in enumerate(feed.batches(order, recipe.batch_size), start=1):
            if recipe.augment:
                batch = data.augment(batch, crops, feed.trim)
            elif feed.trim:
                batch = data.centre(batch, feed.trim)
            half = recipe.precision == "bfloat16"
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                logits = model(data.as_input(batch))  # (batch, classes)
            loss = F.cross_entropy(logits.float(), targets)
            loss.backward()
            if recipe.clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters, recipe.clip_norm)
            optimiser.step(lr_at(recipe, epoch, step / steps))
            losses += loss.detach() * len(targets)
            hits += (logits.detach().argmax(1) == targets).sum()
            if step % CHECK_EVERY == 0:
                _require_finite(losses, recipe, epoch)
    _require_finite(losses, recipe, epoch)
    for parameter in parameters:
        _require_finite(parameter.detach().sum(), recipe, epoch)
    return losses.item() / count, hits.item() / count


def _require_finite(value: Tensor, recipe: Recipe, epoch: int) -> None:
    if not math.isfinite(value.item()):
        raise Diverged(
            f"training diverged in epoch {epoch + 1} of {recipe.epochs}: the loss or a weight is "
            f"not finite (lr {lr_at(recipe, epoch):g}, clip_norm {recipe.clip_norm}). "
            "Lower lr, or set clip_norm."
        )


def _checkpoint(
    epoch: int, model: nn.Module, optimiser: _Optimiser, row: dict[str, float]
) -> Checkpoint:
    return Checkpoint(
        epoch=epoch,
        model={name: _clone(tensor) for name, tensor in model.state_dict().items()},
        momentum={name: _clone(buffer) for name, buffer in optimiser.momentum.items()},
        row=row,
    )


def _clone(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU: a state dict is a view that would follow the training."""
    return tensor.detach().to("cpu", copy=True).contiguous()


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _global_seed(seed: int, epoch: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators, which dropout draws from, and put them back afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(laws.generator(seed, _NETWORK, epoch).initial_seed())
        yield
