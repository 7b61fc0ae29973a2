"""The book: formulas and pictures are in the pages, and nothing is fetched."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from paperlib.paths import Project
from paperlib.report import book

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


@pytest.fixture
def project(tmp_path):
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    picture = new_output("display_data", {"image/png": PIXEL})
    cells = [
        new_markdown_cell("# Growth of $x^2$ & more\n\nIt is $$\\sum_{\\ell<L} n_\\ell^{-1}$$ so."),
        new_code_cell("print('a $ b $ c')", outputs=[picture], execution_count=1),
    ]
    nbformat.write(new_notebook(cells=cells), notebooks / "one.ipynb")
    return Project(tmp_path)


def test_formulas_become_mathml_and_code_stays():
    text = book.with_mathml("so $n_L/n_0$ costs 5$ or 6$, `$x$` stays\n\n$$\\frac{1}{2}$$")
    assert text.count("<math") == 2
    assert 'display="block"' in text and "<mfrac>" in text
    assert "5$ or 6$" in text and "`$x$`" in text


def test_pages_need_no_network(project, tmp_path):
    files = book.write(project, "quick", tmp_path / "out")
    assert [path.name for path in files] == ["index.html", "one.html"]
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r'(?:src|href)="(?!data:|index|one)[^"#]', text)
        assert "<script" not in text
    page = files[1].read_text(encoding="utf-8")
    assert "data:image/png;base64" in page and page.count("<math") == 2


def test_a_page_shows_the_last_run_rather_than_the_committed_notebook(project, tmp_path):
    executed = project.build("quick")
    executed.mkdir(parents=True)
    nbformat.write(new_notebook(cells=[new_markdown_cell("# Run anew")]), executed / "one.ipynb")
    front, page = book.write(project, "quick", tmp_path / "out")
    assert "<title>Run anew</title>" in page.read_text(encoding="utf-8")
    assert "Run anew" in front.read_text(encoding="utf-8")


def test_no_notebooks_is_one_clear_error(tmp_path):
    (tmp_path / "notebooks").mkdir()
    with pytest.raises(FileNotFoundError, match="no notebook in"):
        book.write(Project(tmp_path), "quick", tmp_path / "out")


def test_an_unknown_profile_is_refused(project, monkeypatch, capsys):
    monkeypatch.setenv("PAPERLIB_ROOT", str(project.root))
    assert book.main(["--profile", "quik"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown profile 'quik'; did you mean 'quick'")
    assert not (project.root / "build").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"nbformat": 4, "nbformat_minor": 5}'])
def test_a_malformed_notebook_is_named(project, tmp_path, content):
    (project.notebooks / "one.ipynb").write_text(content)
    with pytest.raises(ValueError, match=r"one\.ipynb is no valid notebook"):
        book.write(project, "quick", tmp_path / "out")
