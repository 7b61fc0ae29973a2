"""Files that prove themselves: tensors and records that carry a checksum of their content.

A file is whole or not there. Reading parses safetensors and JSON only, which cannot run code.
"""

import errno
import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from paperlib import atomic

FORMAT = 1  # of the store; a reader refuses files of a later one


class StoreError(RuntimeError):
    """The store cannot be used; the message says what to do."""


class Damaged(Exception):
    """The file `path` does not hold what was written to it."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path


def write_tensors(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> str:
    """Write contiguous CPU tensors and a record (JSON values) as safetensors; return the digest.

    Raises:
        StoreError: the disk is full or cannot be written; an older file stays as it was.
    """
    text = json.dumps({"format": FORMAT} | dict(record), sort_keys=True)
    digest = _digest(tensors, text)
    metadata = {"record": text, "digest": digest}
    write_whole(path, safetensors.torch.save(dict(tensors), metadata))
    return digest


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], str]:
    """The tensors, the record and the digest of a file written by `write_tensors`, verified.

    Raises:
        FileNotFoundError: there is none.
        Damaged: its content is not what was written.
        StoreError: it cannot be read, or is of a later format.
    """
    content = _content(path)
    if not content:
        raise Damaged(path, "is empty")
    if content.startswith((b"\x80", b"PK\x03\x04")) and content[8:9] != b"{":
        raise Damaged(path, "is a pickle or an archive, which is never opened")
    try:
        tensors = safetensors.torch.load(content)
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        text, written = metadata["record"], metadata["digest"]
        record = json.loads(text)
        _require_known(path, record)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Damaged(path, f"is truncated or no file of this store ({error})") from None
    if _digest(tensors, text) != written:
        raise Damaged(path, "has changed since it was written")
    return tensors, record, written


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read ({error.strerror or error}): give yourself the right to read "
            "it, or remove it, or set STORE to another folder."
        ) from error


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record (JSON values) with its checksum, for people to read too.

    Raises StoreError if the disk is full or cannot be written.
    """
    body = {"format": FORMAT} | dict(record)
    text = json.dumps(body | {"checksum": _checksum(body)}, indent=1, ensure_ascii=False)
    write_whole(path, text.encode() + b"\n")


def read_record(path: Path) -> dict[str, Any]:
    """The record in `path`; FileNotFoundError, Damaged or StoreError as in `read_tensors`."""
    content = _content(path)
    try:
        body = json.loads(content)
        _require_known(path, body)
        written = body.pop("checksum")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(path, f"is truncated or no record ({error})") from None
    if _checksum(body) != written:
        raise Damaged(path, "has changed since it was written")
    return body


def write_whole(path: Path, content: bytes) -> None:
    """Put `content` into `path`, whole or not at all.

    Raises StoreError if the disk is full or cannot be written.
    """
    try:
        atomic.write_whole(path, content)
    except OSError as error:
        raise unwritable(path.parent, error, len(content)) from error


def unwritable(folder: Path, error: OSError, needed: int) -> StoreError:
    """The error to raise when `folder` cannot take `needed` bytes."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(
            f"disk full at {folder}: about {needed / 1e6:.1f} MB more are needed. Free some "
            "space, or set STORE to another folder; what was stored is intact, and the training "
            "goes on from there."
        )
    return StoreError(
        f"{error.filename2 or folder} cannot be written ({error.strerror or error}): set STORE to "
        "a folder of your own."
    )


def set_aside(path: Path) -> Path:
    """Rename a file to the first free of <name>.bad, <name>.bad2, …, and return that."""
    number = 1
    while (aside := path.with_name(f"{path.name}.bad{number if number > 1 else ''}")).exists():
        number += 1
    path.rename(aside)
    return aside


@contextmanager
def aside() -> Iterator[None]:
    """Set the file aside that turns out to be damaged, and say so."""
    try:
        yield
    except Damaged as error:
        if error.path.exists():
            kept = set_aside(error.path)
            text = f"{error}: set aside as {kept.name}, and computed anew"
        else:
            text = f"{error}: computed anew"
        warnings.warn(text, stacklevel=2)


def _require_known(path: Path, record: Mapping[str, Any]) -> None:
    if record["format"] > FORMAT:
        raise StoreError(
            f"{path} is of format {record['format']}, and this library reads up to {FORMAT}: it "
            "was written by a later version. Update the library, or set STORE to another folder."
        )


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """SHA-256 over the record and the names, types, shapes and values of the tensors."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
