"""Folders of photos in ImageNet's layout, `train/<wnid>/*.JPEG` and `val/<wnid>/*.JPEG`, checked.

The classes are the sorted wnids. "imagenet" is ILSVRC-2012 and must be complete; "imagenette" is
ten of its classes, or whatever a folder of the same layout holds. A suffix is the side to which
photos are decoded, e.g. "imagenette-64"; without one it is 256.

Source: App. A of *Are All Layers Created Equal?* for the data set; the rest derived here.
"""

import hashlib
import os
import re
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from paperlib import paths
from paperlib.training.sources import DataError

SPLITS = {"train": "train", "test": "val"}  # our names to those of the folders
SUFFIXES = (".jpeg", ".jpg", ".png")
SIDE = 256  # pixels, of which crops take 224
DOWNLOADED = "imagenette2-320"  # the folder that torchvision's archive unpacks to
STALL = 30.0  # seconds that the server of the download may stay silent


class NoPhotos(DataError):
    """Neither photos nor what was once decoded of them are at hand."""


@dataclass(frozen=True)
class Collection:
    """What a published collection of photos must hold.

    Attributes:
        variable: the environment's variable that names its folder.
        classes: their number, or None where any will do.
        photos: fewest and most in a class, by split.
    """

    variable: str
    classes: int | None
    photos: dict[str, tuple[int, int]]


COLLECTIONS = {
    "imagenet": Collection("IMAGENET", 1000, {"train": (732, 1300), "test": (50, 50)}),
    "imagenette": Collection("IMAGENETTE", None, {}),
}


@dataclass(frozen=True)
class Survey:
    """What a complete folder holds.

    Attributes:
        folder: that has `train` and `val`.
        classes: the wnids, sorted.
        counts: photos by split, class by class.
        names: SHA-256 of the names of all photos.
        digest: SHA-256 of their names and sizes.
    """

    folder: Path
    classes: tuple[str, ...]
    counts: dict[str, tuple[int, ...]]
    names: str
    digest: str


def parse(name: str) -> tuple[str, int] | None:
    """The collection and the side that `name` stands for; None if it is no name of photos.

    Raises ValueError for a side that is no multiple of 8 from 16 to 1024.
    """
    match = re.fullmatch(rf"({'|'.join(COLLECTIONS)})(?:-(\d+))?", name)
    if match is None:
        return None
    side = int(match[2] or SIDE)
    if side % 8 or not 16 <= side <= 1024:
        raise ValueError(f"{name}: the side must be a multiple of 8 from 16 to 1024 pixels.")
    return match[1], side


def find(collection: str, data: Path) -> Path | None:
    """The folder of a collection: what the environment says, or `imagenette2*` in `data`, or None.

    Raises DataError where the environment names no folder, or `data` has several.
    """
    variable = COLLECTIONS[collection].variable
    folder = paths.photos_dir(variable)
    if folder is not None:
        if not folder.is_dir():
            raise DataError(f"{variable}={folder} is no folder: correct {variable}, or unset it.")
        return folder
    if collection != "imagenette":
        return None
    found = sorted(path for path in data.glob("imagenette2*") if path.is_dir())
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise DataError(f"{data} has several copies, {names}: set IMAGENETTE to one of them.")
    return found[0] if found else None


def survey(collection: str, folder: Path) -> Survey:
    """Check the layout of `folder` and count what it holds.

    Raises DataError that names the split or the class folder which is missing, empty or not
    complete. That files are whole turns out only when they are decoded.
    """
    folders = [folder / split for split in SPLITS.values()]
    for split in folders:
        if not split.is_dir():
            raise DataError(
                f"{split} is missing: {collection} needs train/<wnid>/*.JPEG and "
                f"val/<wnid>/*.JPEG in {folder}."
            )
    # A photo that comes or goes changes the time of its class folder.
    state = tuple((e.name, e.stat().st_mtime_ns) for split in folders for e in _subfolders(split))
    return _survey(collection, folder, state)


def forget() -> None:
    """Look at the folders again, even where only the content of photos may have changed."""
    _survey.cache_clear()


@lru_cache(maxsize=4)
def _survey(collection: str, folder: Path, state: tuple[tuple[str, int], ...]) -> Survey:
    """The survey; `state` only keeps an outdated one from being given again."""
    found = {split: _classes(folder / place) for split, place in SPLITS.items()}
    classes = tuple(sorted(found["train"].keys() | found["test"].keys()))
    expected = COLLECTIONS[collection]
    names, digest = hashlib.sha256(), hashlib.sha256()
    counts: dict[str, tuple[int, ...]] = {}
    for split, place in SPLITS.items():
        for wnid in classes:
            if wnid not in found[split]:
                other = next(p for s, p in SPLITS.items() if s != split)
                raise DataError(
                    f"the class folder {folder / place / wnid} is missing, but {other}/{wnid} is "
                    "there: copy it, too, or remove the other."
                )
        for wnid in classes:
            listed = _checked(found[split][wnid], expected.photos.get(split))
            counts[split] = (*counts.get(split, ()), len(listed))
            for name, size in listed:
                names.update(f"{place}/{wnid}/{name}\n".encode())
                digest.update(f"{place}/{wnid}/{name} {size}\n".encode())
    if expected.classes not in (None, len(classes)):
        raise DataError(
            f"{folder} has {len(classes)} class folders, and {collection} has {expected.classes}: "
            f"copy the missing ones, or set IMAGENETTE to the folder to use it as it is."
        )
    return Survey(folder, classes, counts, names.hexdigest(), digest.hexdigest())


def files(found: Survey, split: str) -> list[tuple[str, int]]:
    """The photos of "train" or "test" in our order: path below the split's folder, and bytes.

    The classes take turns: first the first photo of each, by name, then the second, … So the first
    n photos are a fixed sample with about as many of every class.
    """
    place = found.folder / SPLITS[split]
    listed = [sorted(_photos(place / wnid)) for wnid in found.classes]
    if tuple(map(len, listed)) != found.counts[split]:
        raise DataError(f"{place} is being changed: wait until all is copied, and try again.")
    ordered = []
    for label, turn in zip(*_order(found.counts[split]), strict=True):
        name, size = listed[label][turn]
        ordered.append((f"{found.classes[label]}/{name}", size))
    return ordered


def labels(counts: tuple[int, ...]) -> np.ndarray:
    """The class of every photo, `(N,)` int64, in our order, from the number of photos by class."""
    return _order(counts)[0]


def _order(counts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Class and turn of every photo."""
    classes = np.repeat(np.arange(len(counts)), counts)
    turns = np.concatenate([np.arange(count) for count in counts])
    order = np.lexsort((classes, turns))
    return classes[order], turns[order]


def _subfolders(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        found = [e for e in entries if e.is_dir() and not e.name.startswith(".")]
    return sorted(found, key=lambda entry: entry.name)


def _classes(folder: Path) -> dict[str, Path]:
    """The class folders of a split by wnid."""
    found = {entry.name: Path(entry.path) for entry in _subfolders(folder)}
    if not found:
        raise DataError(
            f"{folder} has no class folders: its photos must be sorted into {folder}/<wnid>/, "
            "e.g. by torchvision.datasets.ImageNet out of the original archives."
        )
    for name, path in found.items():
        if not re.fullmatch(r"n\d{8}", name):
            raise DataError(f"{path} is no class folder, as {name!r} is no wnid: move it away.")
    return found


def _photos(folder: Path) -> Iterator[tuple[str, int]]:
    """Name and size of every photo in a class folder, in no order."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith("."):
                yield entry.name, entry.stat().st_size


def _checked(folder: Path, allowed: tuple[int, int] | None) -> list[tuple[str, int]]:
    """Name and size of every photo in a class folder, by name; DataError unless all are there."""
    found = sorted(_photos(folder))
    for name, size in found:
        if not size:
            raise DataError(f"{folder / name} is empty: copy it again.")
    if not found:
        raise DataError(f"the class folder {folder} has no photos: copy it again.")
    if allowed and not allowed[0] <= len(found) <= allowed[1]:
        few, most = allowed
        due = f"{few}" if few == most else f"{few} to {most}"
        raise DataError(
            f"the class folder {folder} has {len(found)} photos, and each class of ILSVRC-2012 "
            f"has {due} there: copy it again."
        )
    return found


def download(data: Path) -> None:
    """Let torchvision fetch Imagenette, with shorter sides of 320 pixels, into `data`.

    torchvision verifies the archive. Raises DataError if it cannot be had.
    """
    from torchvision import datasets  # takes seconds to import

    scratch = data / ".fetching-imagenette"
    shutil.rmtree(scratch, ignore_errors=True)  # what a killed process left
    patience = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL)
    try:
        scratch.mkdir(parents=True)
        datasets.Imagenette(scratch, split="train", size="320px", download=True)
        (scratch / DOWNLOADED).rename(data / DOWNLOADED)
    except (RuntimeError, OSError) as error:
        raise DataError(f"torchvision could not fetch imagenette ({error}). {ways(data)}") from None
    finally:
        socket.setdefaulttimeout(patience)
        shutil.rmtree(scratch, ignore_errors=True)


def absent(collection: str, data: Path) -> NoPhotos:
    """The error to raise where a collection is nowhere."""
    if collection == "imagenette":
        return NoPhotos(f"no photos of imagenette are at hand. {ways(data)}")
    return NoPhotos(
        "no photos of imagenet are at hand: set IMAGENET to a folder that holds ILSVRC-2012 as "
        "train/<wnid>/*.JPEG and val/<wnid>/*.JPEG. Its terms let nobody else pass it on: "
        "https://image-net.org/download tells how to get it."
    )


def ways(data: Path) -> str:
    """Both ways to Imagenette, in words."""
    return (
        "Set IMAGENETTE to a folder that holds train/<wnid>/*.JPEG and val/<wnid>/*.JPEG, or let "
        f"torchvision fetch it into {data} (about 330 MB): "
        "python -m paperlib.training.data imagenette"
    )
