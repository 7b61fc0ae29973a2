"""Photos decoded once, to a memory-mapped file of uint8 pixels that training reads from.

The shorter side of a photo is resized to `side` pixels (bilinear, antialiased), of which the
central square is kept. A cache `photos-v1/<name>-<side>-<key>/` holds `train.u8` and `test.u8`,
`(N, 3, side, side)` each; `parts.jsonl`, a line with the SHA-256 of every part that is decoded;
and, last of all, `record.json`, which vouches for the whole. A folder of photos has one key as
long as their names stay; photos of another size are decoded anew, in parts.

Threads decode, as they need no copies of the program and end with it: Pillow lets them run side by
side. Each holds one part and one photo at a time.

Source: App. A of *Are All Layers Created Equal?* for crops and normalisation; the rest derived
here.
"""

import hashlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from PIL import Image

from paperlib import atomic, cores, progress
from paperlib.training import photos, sources
from paperlib.training.photos import Survey
from paperlib.training.sources import DataError

FORMAT = 1  # of the caches; their folder carries it
PART = 128  # photos that a kill can cost each thread
SHOWN = 10  # bad photos that an error names

Key = tuple[str, int]  # split and number of a part


@dataclass(frozen=True)
class Cache:
    """A finished cache.

    Attributes:
        folder: where it lies.
        side: of the square photos, in pixels.
        classes: the wnids, sorted.
        counts: photos by split, class by class.
        mean, std: of each channel over all pixels of the decoded training photos, in [0, 1].
        checksums: SHA-256 of pixels and labels by split.
        source: where the photos come from, in words.
    """

    folder: Path
    side: int
    classes: tuple[str, ...]
    counts: dict[str, tuple[int, ...]]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksums: dict[str, str]
    source: str

    @property
    def trim(self) -> int:
        """By how many pixels a side is larger than what a network takes: 32 for 256."""
        return self.side // 8

    def pixels(self, split: str) -> np.memmap:
        """The photos `(N, 3, side, side)` uint8, in the order of `photos.files`; read-only."""
        return _mapped(self.folder, split, sum(self.counts[split]), self.side)


def ready(name: str, data: Path) -> Cache:
    """The finished cache of the photos `name` below `data`, decoded now if there is none.

    Its pixels are not verified; see `verified`. Where the photos themselves are gone, the cache
    of before is taken. Several processes may call this at once: one decodes, the others wait.

    Raises:
        DataError: no photos, an incomplete folder, damaged photos, or no room for the cache.
    """
    with _explained(data):
        collection, side = photos.parse(name)
        folder = photos.find(collection, data)
        if folder is None:
            return _only_cache(collection, side, data)
        found = photos.survey(collection, folder)
        key = _sum([str(folder.resolve()), found.names])[:12]
        cache = _caches(data) / f"{collection}-{side}-{key}"
        with suppress(FileNotFoundError):
            return _read(cache, found.digest)
        return _locked(cache, lambda: _decode(found, side, cache))


def verified(name: str, data: Path, split: str, count: int | None) -> Cache:
    """The cache like `ready`, after the first `count` photos of a split were verified.

    Parts that are not what was written are decoded anew, with a UserWarning.
    """
    cache = ready(name, data)
    with _explained(data):
        if not _damaged(cache, split, count):
            return cache
        return _mended(cache, name, data, split, count)


def _mended(cache: Cache, name: str, data: Path, split: str, count: int | None) -> Cache:
    """The cache after its damaged parts were decoded anew."""
    collection, side = photos.parse(name)
    folder = photos.find(collection, data)
    if folder is None:
        raise DataError(
            f"{cache.folder / split}.u8 is damaged, and the photos to decode it from are gone. "
            f"{photos.absent(collection, data)}"
        )
    found = photos.survey(collection, folder)

    def mend() -> Cache:
        damaged = _damaged(cache, split, count)
        if not damaged:
            return cache  # another process was faster
        warnings.warn(
            f"{len(damaged)} parts of {cache.folder / split}.u8 are damaged: decoded anew",
            stacklevel=6,
        )
        lines = {key: line for key, line in _journal(cache.folder).items() if key not in damaged}
        _write_journal(cache.folder, lines)
        _record_path(cache.folder).unlink(missing_ok=True)
        return _decode(found, side, cache.folder)

    return _locked(cache.folder, mend)


def _caches(data: Path) -> Path:
    return data / f"photos-v{FORMAT}"


def _record_path(cache: Path) -> Path:
    return cache / "record.json"


def _journal_path(cache: Path) -> Path:
    return cache / "parts.jsonl"


def _pixels_path(cache: Path, split: str) -> Path:
    return cache / f"{split}.u8"


def _mapped(cache: Path, split: str, count: int, side: int) -> np.memmap:
    return np.memmap(_pixels_path(cache, split), np.uint8, "r", shape=(count, 3, side, side))


def _only_cache(collection: str, side: int, data: Path) -> Cache:
    """The one finished cache of this name, for photos that are no longer there."""
    found = [
        cache
        for cache in sorted(_caches(data).glob(f"{collection}-{side}-*"))
        if _record_path(cache).is_file()
    ]
    if len(found) > 1:
        raise DataError(
            f"{_caches(data)} has several caches of {collection}: set "
            f"{photos.COLLECTIONS[collection].variable} to the folder of photos that is meant."
        )
    if found:
        with suppress(FileNotFoundError):
            return _read(found[0])
    raise photos.absent(collection, data)


def _locked(cache: Path, work: Callable[[], Cache]) -> Cache:
    """Do `work` while no other process changes the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache.with_name(f".{cache.name}.lock")):
        return work()


@contextmanager
def _explained(data: Path) -> Iterator[None]:
    """Turn errors of the system into a DataError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in sources.FULL:
            raise DataError(
                f"disk full at {_caches(data)}: free some space, or set DATA to another folder; "
                "what was decoded is kept."
            ) from error
        raise DataError(
            f"{error.filename or _caches(data)} cannot be read or written "
            f"({error.strerror or error}): give yourself the right to it; decoded photos are kept "
            "below the data folder, so set DATA to another one if that is the reason."
        ) from error


def _read(cache: Path, digest: str | None = None) -> Cache:
    """The finished cache in a folder; FileNotFoundError where it is not finished or damaged.

    Nor may the photos have another `digest` by now, if that is given.
    """
    try:
        body = json.loads(_record_path(cache).read_text(encoding="utf-8"))
        if body.pop("record") != _sum(body):
            raise ValueError("changed since it was written")
        if digest not in (None, body["photos"]):
            raise ValueError("made of other photos")
        found = _cache(cache, body)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FileNotFoundError(f"no whole record in {cache}") from None
    for split, counts in found.counts.items():
        size = _pixels_path(cache, split).stat().st_size
        if size != sum(counts) * 3 * found.side**2:
            raise FileNotFoundError(f"no whole pixels in {cache}")
    return found


def _cache(cache: Path, body: Mapping[str, Any]) -> Cache:
    return Cache(
        folder=cache,
        side=body["side"],
        classes=tuple(body["classes"]),
        counts={split: tuple(counts) for split, counts in body["counts"].items()},
        mean=tuple(body["mean"]),
        std=tuple(body["std"]),
        checksums=body["checksums"],
        source=body["source"],
    )


def _sum(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _journal(cache: Path) -> dict[Key, dict[str, Any]]:
    """What is known of the parts that are decoded; a line that a kill cut off counts for none."""
    lines = {}
    with suppress(FileNotFoundError):
        for text in _journal_path(cache).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                line = json.loads(text)
                lines[line["split"], line["part"]] = line
    return lines


def _write_journal(cache: Path, lines: Mapping[Key, Mapping[str, Any]]) -> None:
    text = "".join(f"{json.dumps(line)}\n" for line in lines.values())
    atomic.write_whole(_journal_path(cache), text.encode())


def _damaged(cache: Cache, split: str, count: int | None) -> set[Key]:
    """The parts among the first `count` photos that are not what was written."""
    pixels, lines = cache.pixels(split), _journal(cache.folder)

    def good(part: int) -> bool:
        block = pixels[part * PART : (part + 1) * PART]
        expected = lines.get((split, part), {}).get("sha256")
        return hashlib.sha256(np.ascontiguousarray(block)).hexdigest() == expected

    parts = range(math.ceil(min(count or len(pixels), len(pixels)) / PART))
    with ThreadPoolExecutor(cores.available()) as pool:
        return {(split, part) for part, ok in enumerate(pool.map(good, parts)) if not ok}


def _decode(found: Survey, side: int, cache: Path) -> Cache:
    """Decode the parts that the journal of `cache` does not have, and finish the cache."""
    atomic.sweep(cache)
    parts = {
        (split, number): files[start : start + PART]
        for split in photos.SPLITS
        for files in [photos.files(found, split)]
        for number, start in enumerate(range(0, len(files), PART))
    }
    done = {
        key: line
        for key, line in _journal(cache).items()
        if key in parts and line.get("photos") == _sum(parts[key])
    }
    todo = {key: files for key, files in parts.items() if key not in done}
    _require_space(cache, sum(map(len, todo.values())) * 3 * side**2)
    for split, counts in found.counts.items():
        with _pixels_path(cache, split).open("ab") as file:
            file.truncate(sum(counts) * 3 * side**2)
    _write_journal(cache, done)  # without a line that a kill cut off
    bad: list[str] = []
    with _journal_path(cache).open("a", encoding="utf-8") as journal:
        for key, line, problems in _decoded_parts(found, side, cache, todo):
            bad += problems
            if line:
                journal.write(f"{json.dumps(line)}\n")
                journal.flush()
                done[key] = line
    if bad:
        photos.forget()  # in case they are copied while this process lives
        more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        raise DataError(
            f"{len(bad)} photos cannot be read, copy them again; what was decoded is kept: "
            f"{'; '.join(bad[:SHOWN])}{more}."
        )
    return _finish(found, side, cache, {key: done[key] for key in parts})


def _require_space(cache: Path, needed: int) -> None:
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise DataError(
            f"not enough space at {cache}: decoded photos need {needed / 1e9:.1f} GB, and "
            f"{free / 1e9:.1f} GB are free. Free some, or set DATA to another folder."
        )


def _decoded_parts(
    found: Survey, side: int, cache: Path, todo: Mapping[Key, list[tuple[str, int]]]
) -> Iterator[tuple[Key, dict[str, Any] | None, list[str]]]:
    """Decode parts in threads and yield them as they are done: key, journal line, problems."""
    pool = ThreadPoolExecutor(cores.available())

    def work(key: Key) -> tuple[Key, dict[str, Any] | None, list[str]]:
        split, number = key
        place = found.folder / photos.SPLITS[split]
        pixels, problems = _read_photos([place / name for name, _ in todo[key]], side)
        if problems:
            return key, None, problems
        with _pixels_path(cache, split).open("r+b") as file:
            file.seek(number * PART * pixels[0].nbytes)
            file.write(pixels)
        line = {"split": split, "part": number, "photos": _sum(todo[key])}
        return key, line | _statistics(pixels), []

    try:
        futures = [pool.submit(work, key) for key in todo]
        label = f"decoding {found.folder.name} in parts of {PART} photos"
        for _, future in zip(progress.track(len(todo), label), as_completed(futures), strict=True):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _read_photos(paths: list[Path], side: int) -> tuple[np.ndarray, list[str]]:
    """Decoded photos `(n, 3, side, side)`, and what is wrong with those that cannot be read."""
    pixels = np.empty((len(paths), 3, side, side), np.uint8)
    problems = []
    for i, path in enumerate(paths):
        try:
            pixels[i] = square(path, side)
        except Exception as error:  # a damaged photo can raise anything
            problems.append(f"{path} ({error or type(error).__name__})")
    return pixels, problems


def square(path: Path, side: int) -> np.ndarray:
    """The central square of a photo whose shorter side is resized to `side`: (3, side, side).

    Whatever its mode (grey, CMYK, …) and whatever its suffix says; as torchvision's Resize and
    CenterCrop make it. Raises what Pillow raises for a file that is damaged.
    """
    with Image.open(path, formats=("JPEG", "PNG")) as photo:
        rgb = photo.convert("RGB")
    shorter = min(rgb.size)
    width, height = (side * length // shorter for length in rgb.size)
    resized = rgb.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (round((length - side) / 2) for length in (width, height))
    return np.asarray(resized.crop((left, top, left + side, top + side))).transpose(2, 0, 1)


def _statistics(pixels: np.ndarray) -> dict[str, Any]:
    """SHA-256 of a part's pixels `(n, 3, side, side)`, and per channel Σx and Σx², exactly."""
    sums, squares = np.zeros(3), np.zeros(3)
    for photo in pixels.reshape(len(pixels), 3, -1):
        values = photo.astype(np.float64)
        sums += values.sum(1)
        squares += np.einsum("cp,cp->c", values, values)
    return {
        "sha256": hashlib.sha256(pixels).hexdigest(),
        "sums": [int(x) for x in sums],
        "squares": [int(x) for x in squares],
    }


def _finish(found: Survey, side: int, cache: Path, lines: Mapping[Key, Mapping[str, Any]]) -> Cache:
    """Write the record that vouches for the decoded parts."""
    pixels = sum(found.counts["train"]) * side**2
    train = [line for (split, _), line in lines.items() if split == "train"]
    mean = [sum(line["sums"][c] for line in train) / pixels for c in range(3)]
    power = [sum(line["squares"][c] for line in train) / pixels for c in range(3)]
    body = {
        "side": side,
        "classes": found.classes,
        "counts": found.counts,
        "mean": [m / 255 for m in mean],
        "std": [math.sqrt(p - m * m) / 255 for m, p in zip(mean, power, strict=True)],
        "checksums": {
            wanted: _sum(
                [
                    [side, found.classes, found.counts[wanted]],
                    [line["sha256"] for (split, _), line in lines.items() if split == wanted],
                ]
            )
            for wanted in photos.SPLITS
        },
        "source": f"photos in {found.folder}",
        "photos": found.digest,
    }
    for split in photos.SPLITS:
        with _pixels_path(cache, split).open("r+b") as file:
            os.fsync(file.fileno())
    text = json.dumps(body | {"record": _sum(body)}, indent=1)
    atomic.write_whole(_record_path(cache), f"{text}\n".encode())
    return _read(cache)
