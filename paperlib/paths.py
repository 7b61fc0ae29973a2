"""Where everything lies: the only module that knows folders."""

import os
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
QUICK = "quick"  # the profile that is the notebooks' defaults, without a file


@dataclass(frozen=True)
class Project:
    """The folders of one checkout.

    Args:
        root: folder that holds `notebooks/`, `figures/` and `build/`.
        package: folder of the library whose sources the notebooks import.
    """

    root: Path
    package: Path = PACKAGE

    @classmethod
    def here(cls) -> "Project":
        """The checkout that this library comes from, or `PAPERLIB_ROOT` where that is set."""
        root = os.environ.get("PAPERLIB_ROOT")
        return cls(Path(root).resolve() if root else PACKAGE.parent)

    @property
    def notebooks(self) -> Path:
        """The committed notebooks."""
        return self.root / "notebooks"

    @property
    def profiles(self) -> Path:
        """One YAML file a profile: what differs from the notebooks' defaults."""
        return self.notebooks / "profiles"

    @property
    def profile_names(self) -> list[str]:
        """`quick`, then the profiles that have a file, by name."""
        return [QUICK, *sorted(path.stem for path in self.profiles.glob("*.yaml"))]

    @property
    def sanitiser(self) -> Path:
        """What nbval replaces in both texts before it compares them."""
        return self.root / "tests" / "notebooks" / "sanitize.cfg"

    def build(self, profile: str) -> Path:
        """Executed copies and the reuse state; ignored by git."""
        return self.root / "build" / profile

    def figures(self, profile: str) -> Path:
        """Finished figures and their data."""
        return self.root / "figures" / profile


def figures_dir() -> Path:
    """Folder that figures are saved to now: `PAPERLIB_FIGURES`, else `build/lab/figures`.

    The runner and the tests set the variable. It is unset in JupyterLab, so that a reader who
    changes a parameter there never overwrites a committed figure.
    """
    folder = os.environ.get("PAPERLIB_FIGURES")
    return Path(folder) if folder else Project.here().build("lab") / "figures"


def data_dir() -> Path:
    """Folder of the data sets: `DATA` (a relative one starts at the project), else `build/data`.

    ValueError if `DATA` is in the home folder of a user that there is not.
    """
    return _chosen("DATA", "data")


def store_dir() -> Path:
    """Folder of the trained runs: `STORE`, else `build/runs`; as `data_dir`."""
    return _chosen("STORE", "runs")


def photos_dir(variable: str) -> Path | None:
    """Folder of photos that IMAGENET or IMAGENETTE says (from the project if relative), or None."""
    folder = os.environ.get(variable)
    return _from_project(variable, folder) if folder else None


def _chosen(variable: str, default: str) -> Path:
    folder = os.environ.get(variable)
    return _from_project(variable, folder or str(Path("build") / default))


def _from_project(variable: str, folder: str) -> Path:
    try:
        return Project.here().root / Path(folder).expanduser()
    except RuntimeError:
        raise ValueError(f"{variable}={folder}: there is no such user; give a path.") from None
