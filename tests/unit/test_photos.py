"""Folders of photos: where they are, what is missing in them, and in which order they are taken."""

import shutil

import pytest

from paperlib.training import data, photos
from paperlib.training.photos import DataError


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("imagenet", ("imagenet", 256)),
        ("imagenette", ("imagenette", 256)),
        ("imagenette-64", ("imagenette", 64)),
        ("imagenet-standin", None),
        ("cifar10", None),
    ],
)
def test_a_name_tells_collection_and_side(name, parsed):
    assert photos.parse(name) == parsed


@pytest.mark.parametrize("name", ["imagenet-0", "imagenet-60", "imagenette-8", "imagenette-4096"])
def test_a_side_that_crops_do_not_fit_is_refused(name):
    with pytest.raises(ValueError, match="multiple of 8 from 16 to 1024"):
        photos.parse(name)


def test_the_classes_are_the_sorted_wnids_and_take_turns(photo_folder):
    found = photos.survey("imagenette", photo_folder.folder)
    assert found.classes == photo_folder.wnids
    assert found.counts == {"train": (4, 4, 4), "test": (2, 2, 2)}
    names = [name for name, _ in photos.files(found, "test")]
    assert names == [f"{wnid}/{wnid}_{i}.JPEG" for i in range(2) for wnid in found.classes]
    assert photos.labels(found.counts["test"]).tolist() == [0, 1, 2, 0, 1, 2]


def test_a_class_with_fewer_photos_drops_out_of_the_turns(photo_folder):
    (photo_folder.folder / "train" / "n00000020" / "n00000020_0.JPEG").unlink()
    found = photos.survey("imagenette", photo_folder.folder)
    labels = photos.labels(found.counts["train"])
    assert labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 2]
    names = [name for name, _ in photos.files(found, "train")]
    assert [found.classes.index(name.split("/")[0]) for name in names] == labels.tolist()
    assert names[1] == "n00000020/n00000020_1.JPEG"


def test_other_files_do_not_count(photo_folder):
    before = photos.survey("imagenette", photo_folder.folder)
    for place in ("train/n00000003/notes.txt", "train/n00000003/._a.JPEG", "val/n1.tar"):
        (photo_folder.folder / place).write_text("no photo")
    (photo_folder.folder / "train" / ".cache").mkdir()
    assert photos.survey("imagenette", photo_folder.folder) == before


def test_a_survey_notices_new_names_and_new_sizes(photo_folder):
    before = photos.survey("imagenette", photo_folder.folder)
    photo = photo_folder.folder / "train" / "n00000003" / "n00000003_0.JPEG"
    photo.write_bytes(photo.read_bytes() + b"more")
    photos.forget()
    longer = photos.survey("imagenette", photo_folder.folder)
    assert (longer.names == before.names, longer.digest == before.digest) == (True, False)
    photo.rename(photo.with_name("renamed.JPEG"))
    assert photos.survey("imagenette", photo_folder.folder).names != before.names


def remove(path):
    shutil.rmtree(path)


def empty(path):
    for photo in path.iterdir():
        photo.unlink()


def cut_off(path):
    (path / f"{path.name}_1.JPEG").write_bytes(b"")


def flatten(path):
    for number, photo in enumerate(path.glob("*/*")):
        photo.rename(path / f"ILSVRC2012_val_{number:08d}.JPEG")
    for folder in path.glob("n*"):
        folder.rmdir()


def stray(path):
    (path / "tench").mkdir()


@pytest.mark.parametrize(
    ("damage", "place", "words"),
    [
        (remove, "val", "val is missing: imagenette needs"),
        (remove, "val/n00000020", "val/n00000020 is missing, but train/n00000020 is there"),
        (remove, "train/n00000003", "train/n00000003 is missing, but val/n00000003 is there"),
        (empty, "train/n00000100", "class folder .*train/n00000100 has no photos"),
        (cut_off, "val/n00000100", "val/n00000100/n00000100_1.JPEG is empty"),
        (flatten, "val", "val has no class folders: .* sorted into .*val/<wnid>/"),
        (stray, "train", "'tench' is no wnid"),
    ],
)
def test_what_is_not_complete_is_named(photo_folder, damage, place, words):
    damage(photo_folder.folder / place)
    with pytest.raises(DataError, match=words):
        photos.survey("imagenette", photo_folder.folder)


def test_imagenet_must_be_complete(photo_folder):
    with pytest.raises(DataError, match=r"train/n00000003 has 4 photos, .* has 732 to 1300"):
        photos.survey("imagenet", photo_folder.folder)


def test_a_missing_class_of_imagenet_is_noticed(photo_folder, monkeypatch):
    complete = photos.Collection("IMAGENET", 4, {"train": (4, 4), "test": (2, 2)})
    monkeypatch.setitem(photos.COLLECTIONS, "imagenet", complete)
    with pytest.raises(DataError, match="3 class folders, and imagenet has 4"):
        photos.survey("imagenet", photo_folder.folder)


def test_the_environment_names_the_folder(photo_folder, monkeypatch, tmp_path):
    assert photos.find("imagenette", photo_folder.data) == photo_folder.folder
    assert photos.find("imagenet", photo_folder.data) is None
    monkeypatch.setenv("IMAGENET", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"IMAGENET=.*nowhere is no folder"):
        photos.find("imagenet", photo_folder.data)


def test_imagenette_is_found_among_the_data(photo_folder, monkeypatch):
    monkeypatch.delenv("IMAGENETTE")
    assert photos.find("imagenette", photo_folder.data) is None
    first = photo_folder.data / "imagenette2-160"
    photo_folder.folder.rename(first)
    assert photos.find("imagenette", photo_folder.data) == first
    (photo_folder.data / "imagenette2").mkdir()
    with pytest.raises(DataError, match="imagenette2, imagenette2-160: set IMAGENETTE"):
        photos.find("imagenette", photo_folder.data)


def test_without_photos_the_error_says_what_to_do(photo_folder, monkeypatch):
    monkeypatch.delenv("IMAGENETTE")
    with pytest.raises(photos.NoPhotos, match=r"Set IMAGENETTE .* or let torchvision fetch it"):
        data.load("imagenette", "train")
    with pytest.raises(photos.NoPhotos, match="set IMAGENET to a folder that holds ILSVRC-2012"):
        data.load("imagenet", "train")


def test_who_names_imagenette_has_it_downloaded(photo_folder, monkeypatch, capsys):
    monkeypatch.delenv("IMAGENETTE")

    def official(root, *, split, size, download):
        assert (split, size, download) == ("train", "320px", True)
        shutil.copytree(photo_folder.folder, root / "imagenette2-320")

    monkeypatch.setattr("torchvision.datasets.Imagenette", official)
    assert data.main(["imagenette-16"]) == 0
    folder = photo_folder.data / "imagenette2-320"
    assert capsys.readouterr().out == f"imagenette-16: verified; from photos in {folder}\n"
    assert not list(photo_folder.data.glob(".fetching*"))


def test_a_download_that_fails_leaves_nothing(photo_folder, monkeypatch, capsys):
    monkeypatch.delenv("IMAGENETTE")

    def offline(root, **options):
        (root / "imagenette2-320.tgz").write_bytes(b"half")
        raise OSError("no route to host")

    monkeypatch.setattr("torchvision.datasets.Imagenette", offline)
    assert data.main(["imagenette"]) == 1
    assert "no route to host" in (said := capsys.readouterr().err)
    assert "Set IMAGENETTE" in said
    assert not any(photo_folder.data.iterdir())
