"""Which trained runs the notebooks need, and the training of those that are missing, in parallel.

`python -m paperlib.experiments.trainings --help` is what `make runs` calls.
"""

import argparse
import inspect
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from typing import Any

from paperlib import cores
from paperlib.experiments import (
    layers_distances,
    layers_errors,
    layers_fcn,
    layers_freeze,
    layers_initialisers,
    layers_joint,
    layers_joint_resnet,
    layers_lines,
    layers_regularised,
    layers_resnet,
    layers_vgg,
    layers_widths,
)
from paperlib.paths import QUICK, Project
from paperlib.running.errors import Refused
from paperlib.running.run import plan
from paperlib.training import cost, data, runs
from paperlib.training.runs import Spec

FAILED, REFUSED, NO_DATA, INTERRUPTED = 1, 2, 3, 130

# Notebook to the function that says, for its parameters of the same names, which runs it needs.
NEEDED: dict[str, Callable[..., list[Spec]]] = {
    "layers_fig01_fcn_mnist": layers_fcn.specs,
    "layers_fig02_fcn_widths": layers_widths.specs,
    "layers_fig03_vgg_cifar": layers_vgg.specs,
    "layers_fig04_resnet_cifar": layers_resnet.specs,
    "layers_fig05_resnet_imagenet": layers_resnet.plain_specs,
    "layers_fig06_joint_resnet": layers_joint_resnet.specs,
    "layers_fig11_fcn_joint": layers_joint.specs,
    "layers_fig12_joint_resnets": layers_joint_resnet.specs,
    "layers_fig13_joint_alternatives": layers_joint_resnet.specs,
    "layers_fig14_vgg_regularised": layers_regularised.specs,
    "layers_fig15_resnet_cifar_regularised": layers_regularised.specs,
    "layers_fig16_resnet_imagenet_regularised": layers_regularised.specs,
    "layers_fig17_distances_vgg": layers_distances.specs,
    "layers_fig18_distances_resnet_cifar": layers_distances.specs,
    "layers_fig19_distances_resnet_imagenet": layers_distances.specs,
    "layers_fig20_lines_vgg": layers_lines.specs,
    "layers_fig21_lines_resnet": layers_lines.specs_of_both,
    "layers_table3_errors": layers_errors.specs,
    "layers_initialisers": layers_initialisers.specs,
    "layers_table1_freeze_remove": layers_freeze.specs,
}


def needed(name: str, parameters: Mapping[str, Any]) -> list[Spec]:
    """The runs that the notebook `name` asks for with these parameters; [] if it trains nothing."""
    if name not in NEEDED:
        return []
    specs = NEEDED[name]
    return specs(**{key: parameters[key] for key in inspect.signature(specs).parameters})


def missing(specs: Sequence[Spec]) -> list[Spec]:
    """Those that are not in the store yet, each once, in order."""
    once = {spec.folder_name: spec for spec in specs}
    return [spec for spec in once.values() if not runs.finished(spec)]


def train(specs: Sequence[Spec], jobs: int, device: str) -> int:
    """Train `specs` in `jobs` processes; the number of those that failed, whose errors are shown.

    A training that fails leaves the others alone. One whose process dies is tried once more, after
    those that wait, in a new process.
    """
    waiting = deque(specs)
    running: dict[Future[float], tuple[ProcessPoolExecutor, Spec]] = {}
    died: set[str] = set()
    ended = failures = 0

    def start(worker: ProcessPoolExecutor) -> None:
        spec = waiting.popleft()
        running[worker.submit(_train, spec, device)] = worker, spec

    try:
        for _ in range(min(jobs, len(specs))):
            start(_worker())
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                worker, spec = running.pop(future)
                ended += 1
                try:
                    line = f"trained in {future.result():.0f} s"
                except BrokenProcessPool:
                    worker = _worker()
                    line = "its process died, probably out of memory"
                    if spec.folder_name not in died:
                        died.add(spec.folder_name)
                        waiting.append(spec)
                        ended -= 1
                        line += "; it is tried again at the end"
                    else:
                        failures += 1
                        line = f"FAILED: {line}: run again with fewer jobs"
                except Exception as error:  # whatever it is, the others are worth going on with
                    failures += 1
                    line = f"FAILED: {error or type(error).__name__}"
                print(f"[{ended}/{len(specs)}] {spec.title}: {line}", flush=True)
                if waiting:
                    start(worker)
                else:
                    worker.shutdown(wait=False)
    finally:
        for worker, _ in running.values():
            worker.shutdown(wait=False, cancel_futures=True)
    return failures


def _worker() -> ProcessPoolExecutor:
    """One process: where a training has one of its own, it is known which training it died in."""
    return ProcessPoolExecutor(1, get_context("spawn"), _prepare_worker)


def _prepare_worker() -> None:
    # Bars of several processes would overwrite one another in a terminal.
    if os.environ.get("PAPERLIB_PROGRESS") != "off":
        os.environ["PAPERLIB_PROGRESS"] = "log"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Do not go on training when the command was killed; the run resumes next time."""
    connection.wait([parent_process().sentinel])
    os._exit(1)


def _train(spec: Spec, device: str) -> float:
    return float(runs.get(spec, device=device).history.seconds.sum())


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what the notebooks need and the store lacks.

    Returns:
        0, or 1 where a training failed, 2 where the request was refused, 3 where data cannot be
        had, 130 after Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    try:
        specs = [
            spec
            for name in options.names or NEEDED
            for spec in needed(name, _parameters(name, options))
        ]
        # The notebooks need the test images even where no run is missing.
        for name in dict.fromkeys(spec.data for spec in specs):
            data.prepare(name)
        lacking = missing(specs)
        if not lacking:
            return 0
        # Several trainings on one accelerator would only take its memory from each other.
        jobs = options.jobs or (cores.available() if options.device == "cpu" else 1)
        print(cost.estimate(lacking, options.device, jobs), flush=True)
        return FAILED if train(lacking, jobs, options.device) else 0
    except (Refused, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except data.DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return NO_DATA
    except KeyboardInterrupt:
        print("interrupted; finished runs are kept, the others go on next time", file=sys.stderr)
        return INTERRUPTED


def _parameters(name: str, options: argparse.Namespace) -> dict[str, Any]:
    device = options.device
    todo = plan(name, options.profile, device=device, project=Project.here())
    return todo.key.parameters


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paperlib.experiments.trainings",
        description="Train the runs that notebooks need and the store lacks.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks (default: all)")
    parser.add_argument("--profile", default=QUICK, help="a set of overrides (default: quick)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps")
    parser.add_argument(
        "--jobs",
        type=_at_least_one,
        help="trainings at a time (default: all cores; 1 on an accelerator)",
    )
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"give a number of processes from 1, not {text!r}")
    return int(text)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    if status == INTERRUPTED:
        os._exit(status)  # the usual end would wait for the trainings that go on
    sys.exit(status)
