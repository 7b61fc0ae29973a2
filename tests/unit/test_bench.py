import math

import pandas as pd
import pytest
import torch
from torch import nn

from paperlib import bench
from paperlib.benchmarks import accuracy, plain
from paperlib.benchmarks.speed import Cell, matrix_rate
from paperlib.length import theory


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
    monkeypatch.setattr(bench, "memory", lambda widths, sizes: print("memory of", sizes))
    bench.main(["--quick"])
    printed = capsys.readouterr().out
    assert "at 1,000 points: 1 of 1 targets met" in printed
    assert "memory of (50, 200)" in printed
    row = pd.read_csv(tmp_path / "build/bench/bench_length.csv").iloc[0]
    assert row["speedup"] == pytest.approx(row["plain_us"] / row["exact_us"])
    assert row["bound_us"] < row["exact_us"] < row["plain_us"]


def test_memory_says_which_targets_are_missed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_ROOT", str(tmp_path))
    peaks = iter([50 * 2**20, 90 * 2**20])
    monkeypatch.setattr(bench, "peak_growth", lambda *_: next(peaks))
    bench.memory([5, 100, 5], (2, 8), max_bytes=2**30)
    printed = capsys.readouterr().out
    assert "the same for both: missed" in printed
    assert "within the cap of 1024 MiB: met" in printed


def test_an_unknown_choice_is_refused(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--only", "volume"])
    assert "invalid choice: 'volume'" in capsys.readouterr().err
