"""Photos decoded to a memory-mapped cache: the right pixels, verified, and made only once."""

import json
import shutil
from collections import namedtuple

import numpy as np
import pytest
from PIL import Image
from torchvision import transforms

from paperlib.training import data, decoding, photos
from paperlib.training.photos import DataError

NAME = "imagenette-32"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(decoding, "PART", 5)


@pytest.fixture
def decoded(monkeypatch):
    """Names of the photos that are decoded while a test runs."""
    names = []
    square = decoding.square

    def noted(path, side):
        names.append(path.name)
        return square(path, side)

    monkeypatch.setattr(decoding, "square", noted)
    return names


def by_torchvision(path, side):
    crop = transforms.Compose([transforms.Resize(side), transforms.CenterCrop(side)])
    with Image.open(path) as photo:
        return np.asarray(crop(photo.convert("RGB"))).transpose(2, 0, 1)


@pytest.mark.parametrize("size", [(96, 64), (64, 99), (301, 77), (40, 40), (33, 31)])
def test_pixels_are_those_of_torchvision(tmp_path, size):
    rng = np.random.default_rng(1)
    path = tmp_path / "a.JPEG"
    Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)
    assert np.array_equal(decoding.square(path, 32), by_torchvision(path, 32))


@pytest.mark.parametrize(
    ("mode", "form"),
    [("L", "jpeg"), ("CMYK", "jpeg"), ("RGB", "png"), ("RGBA", "png"), ("P", "png"), ("L", "png")],
)
def test_every_kind_of_picture_becomes_rgb(tmp_path, mode, form):
    path = tmp_path / "a.JPEG"
    Image.new("RGB", (40, 50), (204, 204, 204)).convert(mode).save(path, form)
    pixels = decoding.square(path, 32)
    assert (pixels.shape, pixels.dtype) == ((3, 32, 32), np.uint8)
    assert np.abs(pixels.astype(int) - 204).max() <= 2


def test_the_cache_holds_every_photo_in_order(photo_folder):
    cache = decoding.ready(NAME, photo_folder.data)
    found = photos.survey("imagenette", photo_folder.folder)
    for split, place in photos.SPLITS.items():
        pixels = cache.pixels(split)
        assert len(pixels) == sum(found.counts[split])
        for ours, (name, _) in zip(pixels, photos.files(found, split), strict=True):
            path = photo_folder.folder / place / name
            assert np.array_equal(ours, by_torchvision(path, 32))
    assert cache.classes == photo_folder.wnids


def test_mean_and_standard_deviation_are_over_all_pixels_of_the_training_photos(photo_folder):
    cache = decoding.ready(NAME, photo_folder.data)
    pixels = cache.pixels("train") / 255
    assert cache.mean == pytest.approx(pixels.mean((0, 2, 3)), abs=1e-12)
    assert cache.std == pytest.approx(pixels.std((0, 2, 3)), abs=1e-12)


def test_photos_are_decoded_once(photo_folder, decoded):
    first = decoding.ready(NAME, photo_folder.data)
    assert len(decoded) == 18
    assert decoding.verified(NAME, photo_folder.data, "train", None) == first
    assert len(decoded) == 18
    decoding.ready("imagenette-16", photo_folder.data)
    assert len(decoded) == 36


def test_other_photos_have_a_cache_of_their_own(photo_folder):
    first = decoding.ready(NAME, photo_folder.data)
    for place in ("train", "val"):
        folder = photo_folder.folder / place / "n00000020"
        folder.rename(folder.with_name("n00000021"))
    second = decoding.ready(NAME, photo_folder.data)
    assert first.folder != second.folder
    assert first.checksums["train"] != second.checksums["train"]


def test_without_the_photos_the_cache_is_enough(photo_folder, monkeypatch):
    before = decoding.ready(NAME, photo_folder.data)
    monkeypatch.delenv("IMAGENETTE")
    assert decoding.verified(NAME, photo_folder.data, "test", None) == before
    shutil.copytree(before.folder, before.folder.with_name("imagenette-32-other"))
    with pytest.raises(DataError, match="several caches of imagenette: set IMAGENETTE"):
        decoding.ready(NAME, photo_folder.data)


def test_the_checksum_is_that_of_the_content_and_not_of_the_place(photo_folder, monkeypatch):
    before = decoding.ready(NAME, photo_folder.data)
    moved = photo_folder.folder.rename(photo_folder.folder.with_name("moved"))
    monkeypatch.setenv("IMAGENETTE", str(moved))
    other = photo_folder.data.with_name("other")
    assert decoding.ready(NAME, other).checksums == before.checksums


def halved(content):
    return content[: len(content) // 2]


def blank(content):
    return bytes(len(content))


@pytest.mark.parametrize(("damage", "why"), [(halved, "truncated"), (blank, "cannot identify")])
def test_a_damaged_photo_is_named_and_costs_only_its_part(photo_folder, decoded, damage, why):
    photo = photo_folder.folder / "train" / "n00000100" / "n00000100_3.JPEG"
    whole = photo.read_bytes()
    photo.write_bytes(damage(whole))
    with pytest.raises(DataError, match=rf"1 photos cannot be read.*n00000100_3.JPEG .*{why}"):
        data.load(NAME, "train")
    assert len(decoded) == 18
    decoded.clear()
    photo.write_bytes(whole)
    assert len(data.load(NAME, "train")) == 12
    assert sorted(decoded) == ["n00000020_3.JPEG", "n00000100_3.JPEG"]  # the last part of twelve


def test_a_photo_that_was_replaced_is_decoded_anew(photo_folder, decoded):
    before = decoding.ready(NAME, photo_folder.data)
    photo = photo_folder.folder / "val" / "n00000100" / "n00000100_1.JPEG"
    shutil.copyfile(photo.with_name("n00000100_0.JPEG"), photo)
    photos.forget()
    decoded.clear()
    after = decoding.ready(NAME, photo_folder.data)
    assert decoded == ["n00000100_1.JPEG"]  # the last part of six
    assert np.array_equal(after.pixels("test")[5], after.pixels("test")[2])
    assert after.checksums["train"] == before.checksums["train"]
    assert after.checksums["test"] != before.checksums["test"]


def test_only_ten_bad_photos_are_listed(photo_folder):
    for photo in photo_folder.folder.glob("train/*/*"):
        photo.write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"12 photos cannot be read.* and 2 more"):
        data.load(NAME, "train")


def test_a_part_that_was_not_finished_is_decoded_again(photo_folder, decoded):
    cache = decoding.ready(NAME, photo_folder.data)
    before = np.array(cache.pixels("train"))
    journal = cache.folder / "parts.jsonl"
    lines = journal.read_text().splitlines()
    cut = [line for line in lines if json.loads(line)["part"] != 1 or '"test"' in line]
    journal.write_text("\n".join(cut) + '\n{"split": "train", "pa')  # as a kill leaves it
    (cache.folder / "record.json").unlink()
    with (cache.folder / "train.u8").open("r+b") as file:
        file.seek(5 * 3 * 32 * 32)
        file.write(bytes(100))
    decoded.clear()
    again = decoding.ready(NAME, photo_folder.data)
    assert len(decoded) == 5
    assert again == cache
    assert np.array_equal(again.pixels("train"), before)
    assert len(journal.read_text().splitlines()) == len(lines)


def test_damaged_pixels_are_decoded_anew(photo_folder, decoded):
    cache = decoding.ready(NAME, photo_folder.data)
    before = np.array(cache.pixels("train"))
    with (cache.folder / "train.u8").open("r+b") as file:
        file.seek(11 * 3 * 32 * 32)
        file.write(bytes([before[11, 0, 0, 0] ^ 1]))
    decoded.clear()
    data.load(NAME, "train", limit=10)  # looks at the parts that it takes, and no others
    assert not decoded
    with pytest.warns(UserWarning, match=r"1 parts of .*train.u8 are damaged: decoded anew"):
        loaded = data.load(NAME, "train")
    assert len(decoded) == 2
    assert np.array_equal(loaded.images.numpy(), before)


def test_damage_without_the_photos_is_an_error(photo_folder, monkeypatch):
    cache = decoding.ready(NAME, photo_folder.data)
    (cache.folder / "parts.jsonl").unlink()
    monkeypatch.delenv("IMAGENETTE")
    with pytest.raises(DataError, match=r"test.u8 is damaged, and the photos .* are gone"):
        data.load(NAME, "test")


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("record.json", lambda content: content[:-20]),
        ("record.json", lambda content: content.replace(b"n00000020", b"n00000021")),
        ("train.u8", lambda content: content[:-1]),
    ],
)
def test_a_record_that_cannot_vouch_is_made_anew(photo_folder, file, change):
    cache = decoding.ready(NAME, photo_folder.data)
    path = cache.folder / file
    path.write_bytes(change(path.read_bytes()))
    if file == "train.u8":
        with pytest.warns(UserWarning, match="1 parts"):
            assert decoding.verified(NAME, photo_folder.data, "train", None) == cache
    else:
        assert decoding.verified(NAME, photo_folder.data, "train", None) == cache


def test_a_disk_without_room_is_refused_before_decoding(photo_folder, decoded, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 50_000))
    with pytest.raises(DataError, match=r"not enough space .* need 0.0 GB, .* set DATA to another"):
        decoding.ready(NAME, photo_folder.data)
    assert not decoded


def test_a_folder_that_cannot_be_written_is_named(photo_folder):
    (photo_folder.data / "photos-v1").write_text("in the way")
    with pytest.raises(DataError, match=r"photos-v1/.* cannot be read or written .* set DATA"):
        decoding.ready(NAME, photo_folder.data)
