"""The plain way to train a classifier of images and to evaluate it layer by layer.

As a user of torchvision writes it: a Dataset of pictures, transforms, a DataLoader, and loops.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pandas as pd
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from paperlib.training.data import Images


class Pictures(Dataset):
    """Images one by one: a transformed picture and its label, as torchvision's data sets have."""

    def __init__(self, images: Images, transform: transforms.Compose) -> None:
        pixels = images.images.permute(0, 2, 3, 1).contiguous()
        self.pixels = pixels.squeeze(3)  # (N, H, W), or (N, H, W, C) where there are colours
        self.labels = images.labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = Image.fromarray(self.pixels[index].numpy())
        return self.transform(picture), int(self.labels[index])


def loader(
    images: Images,
    batch: int,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    workers: int = 0,
    shuffle: bool = False,
) -> DataLoader:
    """Batches of normalised float32 images `(batch, C, H, W)` and labels; worker processes stay."""
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)])
    return DataLoader(
        Pictures(images, transform),
        batch_size=batch,
        shuffle=shuffle,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def network(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between, named `layer1`, `layer2`, … as `networks.mlp` has them."""
    modules: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths), start=1):
        if layer > 1:
            modules[f"relu{layer - 1}"] = nn.ReLU()
        modules[f"layer{layer}"] = nn.Linear(fan_in, fan_out)
    return nn.Sequential(modules)


def train(
    model: nn.Module,
    batches: DataLoader,
    epochs: int,
    lr: float,
    momentum: float,
    *,
    clip_norm: float | None = None,
) -> tuple[float, float]:
    """Train `model` in place by SGD; mean loss and accuracy in the last epoch, as it was seen."""
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    criterion = nn.CrossEntropyLoss()
    size = len(batches.dataset)
    model.train()
    for _ in range(epochs):
        losses, hits = 0.0, 0
        for images, labels in batches:
            optimiser.zero_grad()
            logits = model(images)
            loss = criterion(logits, labels)
            loss.backward()
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimiser.step()
            losses += loss.item() * len(labels)
            hits += (logits.argmax(1) == labels).sum().item()
    return losses / size, hits / size


def test_error(model: nn.Module, batches: DataLoader) -> float:
    """Share of the images that `model` gets wrong."""
    model.eval()
    wrong = 0
    with torch.no_grad():
        for images, labels in batches:
            wrong += (model(images).argmax(1) != labels).sum().item()
    return wrong / len(batches.dataset)


def matrix(
    model: nn.Module,
    columns: Mapping[str | int, Sequence[Mapping[str, Tensor]]],
    rows: Mapping[str, Sequence[str]],
    final: Mapping[str, Tensor],
    batches: DataLoader,
) -> pd.DataFrame:
    """Test error of the `final` state with the tensors of one row taken from a column's states.

    A cell is the mean over the column's states, each of which is loaded and run on all images.
    """
    errors: dict[str | int, dict[str, float]] = {column: {} for column in columns}
    for column, states in columns.items():
        for row, names in rows.items():
            total = 0.0
            for state in states:
                model.load_state_dict({**final, **{name: state[name] for name in names}})
                total += test_error(model, batches)
            errors[column][row] = total / len(states)
    return pd.DataFrame(errors)
