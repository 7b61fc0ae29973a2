"""Notebooks by name, and profiles: overrides under a name, `quick` being the defaults."""

from pathlib import Path
from typing import Any

import yaml

from paperlib.paths import QUICK, Project
from paperlib.running.errors import Refused, require_known


def notebook_names(project: Project) -> list[str]:
    """Names of the notebooks that make figures, those on length first, then by name."""
    names = (path.stem for path in project.notebooks.glob("*.ipynb"))
    return sorted(names, key=lambda name: (not name.startswith("length_"), name))


def notebook_path(project: Project, name: str) -> Path:
    """The committed notebook called `name`.

    Raises:
        Refused: there is none.
    """
    require_known("", "notebook", name, notebook_names(project))
    return project.notebooks / f"{name}.ipynb"


class _Loader(yaml.SafeLoader):
    """YAML in which no key may stand twice: the last one would win unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} stands here twice", key.start_mark
                )
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def profile_overrides(project: Project, profile: str) -> dict[str, dict[str, Any]]:
    """What `profile` changes: notebook name to parameter values. Nothing for `quick`.

    Raises:
        Refused: the profile is unknown, or its file is not a mapping of notebook names to mappings,
            or names something twice.
    """
    if profile == QUICK:
        return {}
    require_known("", "profile", profile, project.profile_names)
    path = project.profiles / f"{profile}.yaml"
    where = path.relative_to(project.root)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader) or {}
    except (yaml.YAMLError, ValueError) as error:
        raise Refused(f"{where} is no valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise Refused(f"{where} must map notebook names to parameters")
    known = notebook_names(project)
    for name, values in content.items():
        require_known(str(where), "notebook", name, known)
        if not isinstance(values, dict | None):
            raise Refused(f"{where}: {name} must map parameter names to values, not {values!r}")
    return {name: values or {} for name, values in content.items()}
