import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from paperlib import bench
from paperlib.benchmarks import (
    accuracy,
    conv_subject,
    convmatrix,
    convtraining,
    matrix,
    plain,
    plain_classifier,
    store,
    subject,
    training,
)
from paperlib.benchmarks.conv_subject import Subject
from paperlib.benchmarks.speed import Cell, matrix_rate
from paperlib.benchmarks.turns import take_turns
from paperlib.benchmarks.workers import worker
from paperlib.length import theory
from paperlib.training import data, loop
from paperlib.training.data import Images


@pytest.fixture
def one_thread():
    """With several threads, steps this small would mostly wait on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_plain_way_approaches_the_exact_mean():
    torch.manual_seed(0)
    widths = [5, 10, 10, 5]
    lengths = plain.sampled_lengths(widths, 300, points=100)
    assert lengths.shape == (300,)
    ceiling = math.sqrt(theory.variance_bound(widths).sharp / 300)
    assert abs(lengths.mean().item() - theory.mean_length(widths)) < 4 * ceiling


def test_points_needed_keep_the_bias_small_and_hardly_more():
    needed = accuracy.points_needed([5, 10, 10, 5])
    assert 0.5e-4 < needed.bias <= 1e-4
    assert 300 < needed.points < 30_000


def test_two_points_are_enough_for_a_linear_network():
    assert accuracy.points_needed([5, 5]).points == 2


def test_products_of_a_linear_network_are_those_of_two_points():
    assert accuracy.products([3, 7]) == 2 * 2 * 21


def test_products_count_the_breakpoints_of_the_layers_before(monkeypatch):
    net = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 2)).double()
    with torch.no_grad():
        net[0].weight.fill_(1.0)
        net[0].bias.copy_(torch.tensor([0.0, 0.5, 9.0]))  # two zeros in [-1, 1]
    curve = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    monkeypatch.setattr(accuracy.ensemble, "member", lambda *_: (net, curve))
    assert accuracy.products([1, 3, 2], nets=1) == 2 * (2 * 3 + 4 * 6)


def test_cells_know_their_weights_and_targets():
    cell = Cell(20, 3)
    assert cell.widths == [5, 20, 20, 20, 5]
    assert cell.weights == sum(a * b for a, b in zip(cell.widths, cell.widths[1:], strict=False))
    assert [Cell(w, d).target for w, d in [(20, 50), (50, 50), (100, 20)]] == [10.0, 4.0, 2.5]
    assert Cell(100, 50).target is None
    assert Cell(5, 1, "cuda").target == 100.0
    assert Cell(20, 20).target_at_equal_accuracy == 50.0
    assert Cell(100, 5).target_at_equal_accuracy == 10.0


def test_the_machine_s_rate_is_plausible():
    assert 1e8 < matrix_rate(256) < 1e14


@pytest.mark.slow
def test_a_run_prints_its_verdicts_and_saves_its_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_ROOT", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(bench, "QUICK_GRID", [Cell(5, 2)])
    bench.main(["length", "--quick"])
    assert "at 1,000 points: 1 of 1 targets met" in capsys.readouterr().out
    row = pd.read_csv(tmp_path / "build/bench/bench_length.csv").iloc[0]
    assert row["speedup"] == pytest.approx(row["plain_us"] / row["exact_us"])
    assert row["bound_us"] < row["exact_us"] < row["plain_us"]


def test_memory_says_which_targets_are_missed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_ROOT", str(tmp_path))
    peaks = iter([50 * 2**20, 90 * 2**20])
    monkeypatch.setattr(bench, "peak_growth", lambda *_: next(peaks))
    bench.main(["memory"])
    printed = capsys.readouterr().out
    assert "the same for both: missed" in printed
    assert "within the cap of 1024 MiB: met" in printed


@pytest.mark.parametrize(
    ("arguments", "ran"),
    [
        (
            [],
            ["length", "memory", "training", "matrix", "store", "convtraining", "convmatrix"],
        ),
        (["store", "length"], ["store", "length"]),
    ],
)
def test_the_parts_asked_for_are_run_and_all_by_default(arguments, ran, monkeypatch):
    done = []
    for part in list(bench.PARTS):
        monkeypatch.setitem(bench.PARTS, part, lambda quick, part=part: done.append((part, quick)))
    bench.main([*arguments, "--quick"])
    assert done == [(part, True) for part in ran]


def test_an_unknown_part_is_refused_with_the_nearest(capsys):
    with pytest.raises(SystemExit):
        bench.main(["lenght"])
    assert "unknown part 'lenght'; did you mean 'length'?" in capsys.readouterr().err


def test_data_that_cannot_be_had_are_one_sentence(monkeypatch):
    def refuse(*_, **options):
        raise data.DataError("no source has mnist")

    monkeypatch.setattr(data, "load", refuse)
    with pytest.raises(SystemExit, match="training: no source has mnist"):
        bench.main(["training"])


def test_sides_take_turns_and_the_quickest_round_counts():
    order = []
    times = {"a": iter([3.0, 1.0, 2.0]), "b": iter([4.0, 6.0, 5.0])}

    def side(name):
        order.append(name)
        return next(times[name])

    assert take_turns([lambda: side("a"), lambda: side("b")], 3) == [1.0, 4.0]
    assert order == ["a", "b"] * 3


def test_plain_batches_are_the_images_normalised(synthetic):
    batches = plain_classifier.loader(synthetic, 128, (0.3,), (0.7,))
    pixels, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    torch.testing.assert_close(pixels, (synthetic.images.double() / 255 - 0.3).div(0.7).float())
    assert torch.equal(labels, synthetic.labels)


def test_both_ways_of_training_take_the_same_steps(synthetic, one_thread):
    sizes = []

    def note(module, inputs, output):
        if isinstance(module, nn.Sequential) and module.training:
            sizes.append(len(output))

    with register_module_forward_hook(note):
        training.time_ours(synthetic)
        assert sizes == [128, 128, 44]
        training.time_plain(synthetic, workers=0)
        assert sizes == [128, 128, 44] * 2


def test_the_plain_way_of_training_learns(synthetic, one_thread):
    torch.manual_seed(0)
    model = plain_classifier.network([64, 16, 4])
    batches = plain_classifier.loader(synthetic, 32, (0.5,), (0.25,), shuffle=True)
    loss, accuracy = plain_classifier.train(model, batches, 5, 0.05, 0.9)
    assert loss < 0.3
    assert accuracy > 0.95
    assert plain_classifier.test_error(model, batches) < 0.05


def test_both_ways_give_the_same_matrix(synthetic, one_thread):
    few = subject.first(synthetic, 100)
    _, ours = matrix.time_ours(synthetic, few)
    _, plain_table = matrix.time_plain(synthetic, few, workers=0)
    assert list(ours.columns) == ["ReRnd", *range(9)]
    pd.testing.assert_frame_equal(ours, plain_table, check_names=False, rtol=0, atol=1e-3)
    assert ours.loc["fullmodel", 8] < 0.05 < ours.loc["layer1", "ReRnd"]


def test_the_store_trains_what_is_trained_without_it(synthetic, tmp_path, monkeypatch):
    monkeypatch.setenv("STORE", str(tmp_path))
    trained = []
    train = loop.train

    def note(model, images, recipe, seed, **options):
        train(model, images, recipe, seed, **options)
        trained.append((model, images, recipe, seed))

    monkeypatch.setattr(loop, "train", note)
    seconds, in_epochs = store.time_stored(synthetic, 2)
    assert 0 < in_epochs < seconds
    store.time_bare(synthetic, 2)
    (with_store, *given), (without, *same) = trained
    assert given == same
    for a, b in zip(with_store.parameters(), without.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def in_process(monkeypatch):
    """Both ways in this process, without workers that load images: the same work, at once."""
    for part in (training, matrix, store, convtraining, convmatrix):
        monkeypatch.setattr(part, "worker", lambda cores: ThreadPoolExecutor(1))
    loader = plain_classifier.loader
    monkeypatch.setattr(
        plain_classifier, "loader", lambda *_, workers, **options: loader(*_, **options)
    )


def test_the_parts_that_train_print_their_verdicts_and_save_their_tables(
    synthetic, tmp_path, monkeypatch, capsys, in_process, one_thread
):
    monkeypatch.setenv("PAPERLIB_ROOT", str(tmp_path))
    monkeypatch.setenv("STORE", str(tmp_path / "store"))
    few = subject.first(synthetic, 20)
    monkeypatch.setattr(data, "load", lambda *_, **options: few)
    bench.main(["training", "matrix", "store", "--quick"])
    printed = capsys.readouterr().out
    for target in ("at least 3: ", "at least 5: ", "at most 5%: "):
        assert target in printed
    tables = {
        part: pd.read_csv(tmp_path / f"build/bench/bench_{part}.csv")
        for part in ("training", "matrix", "store")
    }
    assert list(tables["training"]["cores"]) == sorted({1, bench.CORES})
    for row in (*tables["training"].to_dict("records"), tables["matrix"].iloc[0]):
        quicker = min(row["plain_s"], row["plain_workers_s"])
        assert row["speedup"] == pytest.approx(quicker / row["ours_s"])
    assert tables["matrix"]["difference"][0] <= 1e-3
    row = tables["store"].iloc[0]
    assert row["overhead"] == pytest.approx(row["stored_s"] / row["bare_s"] - 1)


@pytest.fixture
def pictures():
    """40 random images in CIFAR-10's shape."""
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (40, 3, 32, 32), generator=rng, dtype=torch.uint8)
    labels = torch.randint(10, (40,), generator=rng)
    return Images(pixels, labels, "cifar10", data.checksum(pixels, labels))


TINY = [Subject("resnet18", 2, 0.1), Subject("vgg11", 2, 0.05)]


def test_plain_batches_have_colours(pictures):
    batches = plain_classifier.loader(pictures, 16, (0.3, 0.4, 0.5), (0.7, 0.8, 0.9))
    pixels = torch.cat([images for images, _ in batches])
    expected = (pictures.images / 255 - torch.tensor([0.3, 0.4, 0.5]).view(3, 1, 1)) / (
        torch.tensor([0.7, 0.8, 0.9]).view(3, 1, 1)
    )
    torch.testing.assert_close(pixels, expected)


@pytest.mark.parametrize("what", TINY, ids=lambda what: what.network)
def test_both_ways_give_the_same_matrix_of_a_convolutional_network(what, pictures, one_thread):
    _, ours = convmatrix.time_ours(what, pictures, "float32")
    _, plain_table = convmatrix.time_plain(what, pictures)
    assert list(ours.columns) == ["ReRnd", 0, 1, 10, 12]
    pd.testing.assert_frame_equal(ours, plain_table, check_names=False, rtol=0, atol=1 / 40)
    assert ours.to_numpy().std() > 0


@pytest.mark.parametrize("what", TINY, ids=lambda what: what.network)
def test_the_floor_runs_the_layers_that_ours_runs(what, pictures, one_thread):
    def count(way, *options):
        calls = Counter()

        def note(module, inputs, output):
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                calls[type(module)] += len(output) == 40

        with register_module_forward_hook(note):
            way(what, pictures, *options)
        return calls

    assert count(convmatrix.time_floor) == count(convmatrix.time_ours, "float32")


def test_both_ways_of_training_convolutional_networks_take_the_same_steps(pictures, one_thread):
    sizes = []

    def note(module, inputs, output):
        if isinstance(module, nn.Conv2d) and module.in_channels == 3:
            sizes.append((len(output), output.is_contiguous(memory_format=torch.channels_last)))

    with register_module_forward_hook(note):
        convtraining.time_ours(TINY[0], pictures, "float32")
        convtraining.time_plain(TINY[0], pictures, workers=0)
    assert sizes == [(40, True), (40, False)]


def test_the_plain_way_clips_gradients_as_the_recipe_says(synthetic, one_thread):
    def moved(clip_norm):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
        before = model[1].weight.detach().clone()
        batches = plain_classifier.loader(synthetic, 300, (0.5,), (0.25,))
        plain_classifier.train(model, batches, 1, 1.0, 0.0, clip_norm=clip_norm)
        return (model[1].weight - before).norm().item()

    assert moved(0.01) <= 0.01 < moved(None)


def test_the_parts_on_convolutional_networks_print_their_verdicts(
    pictures, tmp_path, monkeypatch, capsys, in_process, one_thread
):
    monkeypatch.setenv("PAPERLIB_ROOT", str(tmp_path))
    monkeypatch.setattr(data, "load", lambda *_, **options: pictures)
    monkeypatch.setattr(conv_subject, "RESNET", TINY[0])
    monkeypatch.setattr(conv_subject, "VGG", TINY[1])
    bench.main(["convtraining", "convmatrix", "--quick"])
    printed = capsys.readouterr().out
    for target in ("images a second", "at least 4: ", "at most 1.3: "):
        assert target in printed
    table = pd.read_csv(tmp_path / "build/bench/bench_convmatrix.csv")
    assert list(table.subject) == ["resnet18, base width 2", "vgg11, base width 2"]
    for row in table.itertuples():
        assert row.speedup == pytest.approx(row.plain_s / row.ours_s)
        assert row.over_floor == pytest.approx(row.ours_s / row.floor_s)
        assert row.difference <= 1 / 40
    trained = pd.read_csv(tmp_path / "build/bench/bench_convtraining.csv")
    for row in trained.itertuples():
        assert row.target == convtraining.TARGETS[row.precision]
        assert row.speedup == pytest.approx(min(row.plain_s, row.plain_workers_s) / row.ours_s)


@pytest.mark.slow
def test_the_plain_way_loads_with_workers_in_a_process_with_its_own_threads(synthetic):
    with worker(1) as process:
        assert process.submit(torch.get_num_threads).result() == 1
        assert process.submit(training.time_plain, synthetic, 1).result() > 0
