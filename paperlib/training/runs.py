"""The store of trained runs: each is trained once, verified when it is read, and shared.

    run = get(Spec("mlp", {"hidden": 3, "width": 256}, Recipe(epochs=8, lr=0.01), "mnist"))
    run.state(0)  # the state dict at initialisation
    run.model()  # the final network

A run's folder `<network>-<data>-<hash of the spec>/` holds `spec.json`, `epoch-000.safetensors`
(at initialisation), `epoch-001.safetensors`, …, `history.csv` and `done.json`, and until it is
finished `state.safetensors`, from which a killed training goes on.
"""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from paperlib import atomic, devices, networks, paths, progress
from paperlib.networks.laws import check_int
from paperlib.training import data, files, loop
from paperlib.training.data import Images
from paperlib.training.files import Damaged, StoreError
from paperlib.training.loop import Checkpoint
from paperlib.training.recipe import Recipe

__all__ = ["Run", "Spec", "StoreError", "finished", "get"]

# The state to go on from is saved when this many times the cost of saving it has passed, so that
# saving takes at most 1/30 of the time.
PATIENCE = 30


@dataclass(frozen=True)
class Spec:
    """All that a trained run depends on, but for the machine.

    Attributes:
        network: a name that `networks.build` knows.
        options: of the network, JSON values. For a known data set, its `image_shape`, `mean`,
            `std` and `classes` are set unless given here.
        data: what `data.load` knows, or the name of images of the caller's own.
        train_images: take the first ones only.
        seed: of the initial weights and of the training.
        keep_epochs: the epochs whose states are kept, beside 0 and the last; None keeps all.

    Raises ValueError for values that are not allowed.
    """

    network: str
    options: Mapping[str, Any] = field(hash=False)
    recipe: Recipe
    data: str
    train_images: int | None = None
    seed: int = 0
    keep_epochs: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "options", json.loads(json.dumps(dict(self.options))))
        except (TypeError, ValueError):
            raise ValueError(f"options must be JSON values by name; got {self.options!r}") from None
        check_int("seed", self.seed, 0)
        if self.train_images is not None:
            check_int("train_images", self.train_images, 1)
        if self.keep_epochs is not None:
            kept = tuple(sorted({check_int("every kept epoch", e, 0) for e in self.keep_epochs}))
            if any(epoch > self.recipe.epochs for epoch in kept):
                raise ValueError(f"keep_epochs must lie in 0 … {self.recipe.epochs}; got {kept}.")
            object.__setattr__(self, "keep_epochs", kept)

    @property
    def kept(self) -> tuple[int, ...]:
        """The epochs whose states the run has, in order."""
        last = self.recipe.epochs
        every = range(last + 1) if self.keep_epochs is None else self.keep_epochs
        return tuple(sorted({0, *every, last}))

    @property
    def hash(self) -> str:
        """Short SHA-256 of `contents`."""
        text = json.dumps(self.contents(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def folder_name(self) -> str:
        """Name of the run's folder in the store."""
        return f"{self.network}-{self.data}-{self.hash}"

    @property
    def title(self) -> str:
        """What is trained, in words."""
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.network} ({options}) on {self.data}, seed {self.seed}"

    def contents(self) -> dict[str, Any]:
        """The spec as JSON values, with the checksums of a known data set and the version of the
        training code."""
        facts = data.facts(self.data)
        recipe = asdict(self.recipe)
        if not recipe["warmup"]:
            del recipe["warmup"]  # runs of before there was one keep their hash
        return {
            "network": self.network,
            "options": self._all_options(),
            "recipe": recipe,
            "data": self.data,
            "checksums": facts.checksums if facts else [],
            "train_images": self.train_images,
            "seed": self.seed,
            "keep_epochs": self.keep_epochs,
            "training": loop.VERSION,
        }

    def build(self, seed: int | None = None) -> nn.Module:
        """The network as it is before training, or as another `seed` would make it."""
        seed = self.seed if seed is None else seed
        return networks.build(self.network, seed=seed, **self._all_options())

    def _all_options(self) -> dict[str, Any]:
        facts = data.facts(self.data)
        if facts is None:
            return dict(self.options)
        known = {"image_shape": facts.image_shape, "mean": facts.mean, "std": facts.std}
        if facts.classes != 10:
            known["classes"] = facts.classes  # runs of ten classes, the default, keep their hash
        return known | self.options


@dataclass(frozen=True, eq=False)
class Run:
    """A finished training.

    Attributes:
        spec: what was trained.
        folder: where it is stored.
        history: one row an epoch: epoch, lr, loss and accuracy on the training images, seconds,
            and the device and the version of torch that it was computed with.
    """

    spec: Spec
    folder: Path
    history: pd.DataFrame
    _digests: Mapping[int, str] = field(repr=False)

    @property
    def epochs(self) -> list[int]:
        """The epochs whose states are stored, in order: 0 is at initialisation."""
        return sorted(self._digests)

    def state(self, epoch: int) -> dict[str, Tensor]:
        """The state dict after `epoch` epochs, on the CPU.

        Raises:
            ValueError: that epoch was not kept.
            StoreError: the file was damaged since `get`.
        """
        digest = self.digest(epoch)
        try:
            return _read_epoch(self.folder, epoch, digest)
        except Damaged as error:
            raise StoreError(f"{error}: get the run again, which computes it anew.") from None

    def digest(self, epoch: int) -> str:
        """A checksum of the state after `epoch` epochs; ValueError if that was not kept."""
        if epoch not in self._digests:
            raise ValueError(f"no state of epoch {epoch!r}; kept are {self.epochs}.")
        return self._digests[epoch]

    def model(self, epoch: int | None = None) -> nn.Module:
        """The network after `epoch` epochs (default: all) on the CPU, in eval mode."""
        model = self.spec.build()
        model.load_state_dict(self.state(self.epochs[-1] if epoch is None else epoch))
        return model.eval()


def get(
    spec: Spec,
    *,
    store: Path | None = None,
    device: str = "cpu",
    images: Images | None = None,
) -> Run:
    """The run of `spec`, from the store or trained now.

    Any number of processes may ask for it at once: one trains, the others wait. A training that
    was killed goes on where it was last saved, and on the same CPU ends with the same bits as one
    that was not. Damaged files are set aside as `.bad` with a UserWarning, and computed anew.

    Args:
        store: folder of the runs; default `paths.store_dir()`.
        device: where to train: cpu, cuda, cuda:N or mps.
        images: of the caller's own, where `spec.data` is the name of no known data set.

    Raises:
        StoreError: disk full, a folder or a file that cannot be read or written, files of a later
            version of the library, or a run of this spec on other images.
        DataError: the data cannot be had.
        Diverged: the loss is not finite.
        ValueError: the spec names a network, an option or data that do not exist.
    """
    where = devices.resolve(device)
    if images is not None and images.name != spec.data:
        raise ValueError(f"the spec is for {spec.data!r}; the images are {images.name!r}.")
    folder = (store or paths.store_dir()) / spec.folder_name
    with suppress(OSError, Damaged):
        return _finished(spec, folder, images)
    with _only_writer(folder):
        _clean(spec, folder)
        with suppress(FileNotFoundError):
            return _finished(spec, folder, images)  # another process was faster
        _train(spec, folder, where, images)
        return _finished(spec, folder, images)


def finished(spec: Spec, *, store: Path | None = None) -> bool:
    """Whether the store has the run of `spec`; `get` also verifies its files."""
    done = (store or paths.store_dir()) / spec.folder_name / "done.json"
    return os.path.isfile(done)  # a folder that may not be read has none, until `get` complains


def _finished(spec: Spec, folder: Path, images: Images | None) -> Run:
    """The run in `folder`, all files verified; FileNotFoundError where it is not finished."""
    record = _read_done(spec, folder)
    _require_same_images(folder, record, images)
    digests = {int(epoch): digest for epoch, digest in record["epochs"].items()}
    for epoch, digest in digests.items():
        _read_epoch(folder, epoch, digest)
    return Run(spec, folder, pd.DataFrame(record["history"]), digests)


def _read_done(spec: Spec, folder: Path) -> dict[str, Any]:
    path = folder / "done.json"
    record = files.read_record(path)
    if record["spec"] != spec.hash:
        raise Damaged(path, f"is that of another run ({record['spec']})")
    return record


def _read_epoch(folder: Path, epoch: int, digest: str) -> dict[str, Tensor]:
    path = _epoch_path(folder, epoch)
    try:
        tensors, record, found = files.read_tensors(path)
    except FileNotFoundError:
        raise Damaged(path, "is missing") from None
    if found != digest:
        raise Damaged(path, f"holds epoch {record.get('epoch')} of run {record.get('spec')}")
    return tensors


def _epoch_path(folder: Path, epoch: int) -> Path:
    return folder / f"epoch-{epoch:03d}.safetensors"


def _state_path(folder: Path) -> Path:
    return folder / "state.safetensors"


def _require_same_images(folder: Path, record: Mapping[str, Any], images: Images | None) -> None:
    if images is not None and record["images"] != images.checksum:
        raise StoreError(
            f"{folder} was trained on other images of the name {images.name!r} "
            f"({record['images'][:12]}, not {images.checksum[:12]}): give them another name."
        )


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Make the folder, and keep other processes from writing to it; a killed holder lets go."""
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress.say(f"{folder.name}: another process trains it; waiting for that")
            lock.acquire()
        yield
    except OSError as error:
        raise files.unwritable(folder, error, 0) from error
    finally:
        lock.release()


def _clean(spec: Spec, folder: Path) -> None:
    """Remove what killed writers left half, and set aside whatever is damaged."""
    atomic.sweep(folder)
    spec_path, done = folder / "spec.json", folder / "done.json"
    with suppress(FileNotFoundError), files.aside():
        if files.read_record(spec_path)["hash"] != spec.hash:
            raise Damaged(spec_path, "is that of another run")
    record: dict[str, Any] = {"epochs": {}}
    with suppress(FileNotFoundError), files.aside():
        record = _read_done(spec, folder)
    if not _all_good(folder, record["epochs"]):
        done.unlink()  # it vouches for files that are no longer there


def _all_good(folder: Path, digests: Mapping[str, str]) -> bool:
    """Whether these epochs' files are as written; those that are not are set aside."""
    good = 0
    for epoch, digest in digests.items():
        with files.aside():
            _read_epoch(folder, int(epoch), digest)
            good += 1
    return good == len(digests)


def _train(spec: Spec, folder: Path, device: torch.device, images: Images | None) -> None:
    """Train what is not stored yet, and finish the run."""
    model = spec.build().to(device)
    if images is None:
        images = data.load(spec.data, "train", limit=spec.train_images)
    elif spec.train_images not in (None, len(images)):
        raise ValueError(f"train_images is {spec.train_images}; there are {len(images)} images.")
    start, record = _resume(spec, folder, images)
    _require_space(folder, model, spec)
    files.write_record(folder / "spec.json", {"hash": spec.hash} | spec.contents())
    saver = _Saver(spec, folder, record, device)
    loop.train(
        model,
        images,
        spec.recipe,
        spec.seed,
        start_state=start,
        on_epoch=saver.save,
        label=spec.title,
    )
    saver.finish()


def _resume(spec: Spec, folder: Path, images: Images) -> tuple[Checkpoint | None, dict[str, Any]]:
    """Where to go on, and what the state's record says; from the start if anything is damaged."""
    path = _state_path(folder)
    fresh = {"spec": spec.hash, "images": images.checksum, "epochs": {}, "history": []}
    with suppress(FileNotFoundError), files.aside():
        tensors, record, _ = files.read_tensors(path)
        if "history" not in record or record["spec"] != spec.hash:
            raise Damaged(path, "is not the state of this run")
        _require_same_images(folder, record, images)
        if _all_good(folder, record["epochs"]):
            model, momentum = (
                {n.removeprefix(kind): t for n, t in tensors.items() if n.startswith(kind)}
                for kind in ("model.", "momentum.")
            )
            epoch = record["epoch"]
            return Checkpoint(epoch, model, momentum, {}), {key: record[key] for key in fresh}
    return None, fresh


def _require_space(folder: Path, model: nn.Module, spec: Spec) -> None:
    """StoreError unless the disk has room for every state, and two to go on from."""
    size = sum(t.numel() * t.element_size() + 1000 for t in model.state_dict().values())
    needed = size * (len(spec.kept) + 4)
    if shutil.disk_usage(folder).free < needed:
        raise files.unwritable(folder, OSError(errno.ENOSPC, "no space"), needed)


class _Saver:
    """Writes the files of a run while it is trained."""

    def __init__(
        self, spec: Spec, folder: Path, record: dict[str, Any], device: torch.device
    ) -> None:
        self.spec, self.folder, self.record = spec, folder, record
        self.made_by = {"device": str(device), "torch": torch.__version__}
        self.next_save = 0.0

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep the state of a kept epoch, and now and then all that is needed to go on."""
        epoch, digests = checkpoint.epoch, self.record["epochs"]
        if checkpoint.row:
            self.record["history"].append(checkpoint.row | self.made_by)
        if epoch in self.spec.kept:
            digests[str(epoch)] = files.write_tensors(
                _epoch_path(self.folder, epoch),
                checkpoint.model,
                {"spec": self.spec.hash, "epoch": epoch},
            )
        start = time.monotonic()
        if 0 < epoch < self.spec.recipe.epochs and start >= self.next_save:
            tensors = {f"model.{name}": t for name, t in checkpoint.model.items()}
            tensors |= {f"momentum.{name}": t for name, t in checkpoint.momentum.items()}
            files.write_tensors(_state_path(self.folder), tensors, self.record | {"epoch": epoch})
            end = time.monotonic()
            self.next_save = end + PATIENCE * (end - start)

    def finish(self) -> None:
        """Vouch for the files; the state to go on from is no longer needed."""
        frame = pd.DataFrame(self.record["history"])
        text = frame.to_csv(index=False, lineterminator="\n")
        files.write_whole(self.folder / "history.csv", text.encode())
        files.write_record(self.folder / "done.json", self.record)
        _state_path(self.folder).unlink(missing_ok=True)
