"""Batches of images on the device: indexed there, or read ahead where all are too many for it."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from paperlib.training.data import Images

RESIDENT = 4 << 30  # bytes of images that a device holds as a whole
READERS = 8  # threads, and batches, that read ahead


class Feed:
    """The images and labels of a training, for a device.

    Both ways give the same batches. Up to RESIDENT bytes lie on the device; on the CPU these may
    still be a file that is mapped into memory. More, such as ImageNet, are read in threads while
    the device computes, so that the disk's waiting times overlap.
    """

    def __init__(self, images: Images, device: torch.device) -> None:
        self.device, self.trim = device, images.trim
        self.labels = images.labels.to(device)
        self.resident = images.images.nbytes <= RESIDENT
        self._pixels = images.images.to(device) if self.resident else images.images

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images `(size, C, H, W)` uint8 and labels `(size,)` in `order`, on the device.

        The last batch may be smaller. `order` is `(n,)` int64 on the CPU.
        """
        chosen = order.to(self.device).split(size)
        targets = (self.labels.index_select(0, numbers) for numbers in chosen)
        if self.resident:
            pixels = (self._pixels.index_select(0, numbers) for numbers in chosen)
        else:
            pixels = self._read_ahead(order.split(size))
        return zip(pixels, targets, strict=True)

    def _read_ahead(self, chosen: tuple[Tensor, ...]) -> Iterator[Tensor]:
        with ThreadPoolExecutor(READERS) as pool:
            reading = deque(pool.submit(self._read, numbers) for numbers in chosen[:READERS])
            for numbers in (*chosen[READERS:], *[None] * len(reading)):
                batch = reading.popleft().result()
                if numbers is not None:
                    reading.append(pool.submit(self._read, numbers))
                yield batch.to(self.device, non_blocking=True)

    def _read(self, numbers: Tensor) -> Tensor:
        # numpy copies without torch's own threads, of which each reader would start some.
        batch = torch.from_numpy(self._pixels.numpy()[numbers.numpy()])
        return batch.pin_memory() if self.device.type == "cuda" else batch
