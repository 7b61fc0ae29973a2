"""The executed notebooks as HTML pages that need no network: `python -m paperlib.report.book`.

One page a notebook and a front page with the figures and the verdicts. Pictures are embedded and
formulas become MathML, so that a page can be mailed or opened from a folder.
"""

import argparse
import html
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from pygments.formatters import HtmlFormatter

from paperlib.choices import check_choice
from paperlib.paths import Project
from paperlib.report import claims
from paperlib.report.tables import COLOURS, SIGNS

STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #1a1a1a; max-width: 860px;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { font-size: 1.25rem; margin-top: 2rem; }
a { color: #0072b2; } nav { font-size: .9rem; }
pre { background: #f6f6f4; padding: .7rem .9rem; overflow-x: auto; font-size: .82rem;
      line-height: 1.4; border-radius: 4px; }
.prompt, .anchor-link { display: none; }
.output_area pre { background: none; padding: 0; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .85rem; display: block; overflow-x: auto; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #e3e3e3; text-align: left;
         vertical-align: top; }
math[display="block"] { margin: .8rem 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 1.2rem; }
.cards a { color: inherit; text-decoration: none; border: 1px solid #e3e3e3; border-radius: 6px;
           padding: .7rem; }
.cards img { display: block; margin-bottom: .5rem; }
"""

_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
_DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_INLINE = re.compile(r"(?<![\\$])\$(?!\s)([^$\n]+(?:\n[^$\n]+)*?)(?<!\s)\$(?!\d)")


def with_mathml(markdown: str) -> str:
    """`markdown` with its TeX formulas as MathML, which browsers draw by themselves.

    Code, between backticks, stays as it is.
    """
    parts = _CODE.split(markdown)
    for i in range(0, len(parts), 2):
        parts[i] = _DISPLAY.sub(lambda m: _mathml(m[1], "block"), parts[i])
        parts[i] = _INLINE.sub(lambda m: _mathml(m[1], "inline"), parts[i])
    return "".join(parts)


def page(path: Path) -> tuple[str, str]:
    """Title and HTML page of one executed notebook; ValueError where it is malformed."""
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except (AttributeError, KeyError, TypeError, ValueError, nbformat.ValidationError) as error:
        raise ValueError(f"{path} is no valid notebook: {error}") from None
    title = _title(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = with_mathml(cell.source)
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    return title, _page(title, '<nav><a href="index.html">All notebooks</a></nav>' + body)


def write(project: Project, profile: str, folder: Path) -> list[Path]:
    """Write the pages of all notebooks and a front page into `folder`.

    A notebook is taken as its last run under `profile` left it, else as it is committed. Returns
    the files, the front page first. Raises FileNotFoundError if there is no notebook.
    """
    committed = sorted(project.notebooks.glob("*.ipynb"))
    if not committed:
        raise FileNotFoundError(f"no notebook in {project.notebooks}: nothing to make a book of.")
    folder.mkdir(parents=True, exist_ok=True)
    cards, pages = [], []
    for path in committed:
        executed = project.build(profile) / path.name
        title, text = page(executed if executed.exists() else path)
        pages.append(folder / f"{path.stem}.html")
        pages[-1].write_text(text, encoding="utf-8")
        cards.append(_card(path.stem, title, project.figures(profile) / f"{path.stem}.svg"))
    found = claims.gather(project.figures(profile), profile)
    heading = "Companion to two papers on ReLU networks"
    body = (
        f"<h1>{heading}</h1><p>Profile: {html.escape(profile)}.</p>"
        f'<div class="cards">{"".join(cards)}</div>'
        f"<h2>Claims</h2><p>{claims.counts(found.values())}.</p>{_verdicts(found)}"
    )
    front = folder / "index.html"
    front.write_text(_page(heading, body), encoding="utf-8")
    return [front, *pages]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the book to build/book/<profile> and say where its front page is.

    Returns:
        0, or 1 where it cannot be written, 2 where the profile is unknown.
    """
    parser = argparse.ArgumentParser(prog="python -m paperlib.report.book", description=__doc__)
    parser.add_argument("--profile", default="quick", help="whose results (default: quick)")
    profile = parser.parse_args(arguments).profile
    project = Project.here()
    try:
        check_choice("profile", profile, project.profile_names)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        front, *pages = write(project, profile, project.build("book") / profile)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{len(pages)} notebooks; open {front.relative_to(project.root)} in a browser")
    return 0


def _mathml(tex: str, display: str) -> str:
    # In HTML the namespace is understood, and nbconvert would turn it into prefixes in headings.
    formula = convert(tex.replace("\n", " ").strip(), display=display)
    return formula.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")


def _title(notebook: nbformat.NotebookNode) -> str:
    first = notebook.cells[0].source.splitlines()[0] if notebook.cells else ""
    return first.lstrip("# ").replace("$", "").strip() or "Notebook"


def _page(title: str, body: str) -> str:
    colours = HtmlFormatter(style="default").get_style_defs(".highlight")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}{colours}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def _card(name: str, title: str, figure: Path) -> str:
    picture = ""
    if figure.exists():
        svg = figure.read_text(encoding="utf-8")
        data = "data:image/svg+xml;utf8," + html.escape(
            svg[svg.index("<svg") :].replace("%", "%25").replace("#", "%23").replace("\n", " ")
        )
        picture = f'<img src="{data}" alt="">'
    return f'<a href="{name}.html">{picture}{html.escape(title)}</a>'


def _verdicts(found: dict[str, claims.Verdict]) -> str:
    rows = "".join(
        f"<tr><td>{id}</td><td>{html.escape(claims.claim(id).statement)}</td>"
        f"<td>{html.escape(claims.claim(id).paper_value)}</td><td>{html.escape(result.ours)}</td>"
        f'<td style="color:{COLOURS[result.verdict]};font-weight:bold;white-space:nowrap">'
        f"{SIGNS[result.verdict]} {result.verdict}</td></tr>"
        for id, result in sorted(
            found.items(), key=lambda item: list(claims.ledger()).index(item[0])
        )
    )
    head = "".join(
        f"<th>{name}</th>" for name in ("claim", "statement", "paper", "ours", "verdict")
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


if __name__ == "__main__":
    sys.exit(main())
