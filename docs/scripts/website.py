"""Builds the documentation as a site, `build/site/index.html`, from the pages of docs: `make docs`.

    python docs/scripts/website.py            # makes .venv-docs the first time, then builds; a broken link ends it
    python docs/scripts/website.py --stage    # writes what the builder reads, build/pages, and builds nothing

Pages are written for the repository, where `../levelfield/train.py` is a link that works. On the site a link to a file
that is not a page leads to `Repository` of pyproject.toml, as in the package's long description. Every such link is
looked up here first, because the builder only knows pages. Nothing of levelfield is imported: mkdocstrings reads the
sources of the reference, so that neither torch nor the rest is needed to build the site.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import contents

DOCS = Path(__file__).resolve().parents[1]

ROOT = DOCS.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BUILD = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
VENV = ROOT / ".venv-docs"
CONSTRAINTS = DOCS / "constraints.txt"
SETTINGS = DOCS / "zensical.toml"

FROM_THE_TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
TAKEN = (".md", ".png", ".svg", ".html", ".json", ".ipynb")  # of docs/: pages, and what they show or hand out
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
HREF = re.compile(r'href="(\.\./[^"#]+)"')
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")

REFERENCE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "compare-and-audit": ("compare and audit", ("levelfield.api",)),
    "own-data": ("Own data", ("levelfield.user.own_data",)),
    "runs": ("Runs, models, recipes", tuple(f"levelfield.spec.{n}" for n in ("run", "model", "recipe", "protocol"))),
    "tasks": ("Tasks", tuple(f"levelfield.spec.{n}" for n in ("task", "examples"))),
    "studies": ("Studies, rows, probes", ("levelfield.spec.study",)),
    "protocols": (
        "Protocols and objectives",
        ("levelfield.protocols", *(f"levelfield.objectives{n}" for n in ("", ".base", ".label_sets"))),
    ),
    "contract": ("The contract of mixers", ("levelfield.contract", "levelfield.user.mixer")),
    "verdicts": ("Verdicts", ("levelfield.report.decisions", "levelfield.report.verdicts")),
    "training": ("Training and evaluation", tuple(f"levelfield.{n}" for n in ("train", "evaluate", "run", "model"))),
    "language-models": ("Language models", ("levelfield.ruler", "levelfield.pretrained.language_model")),
}


class Broken(Exception):
    """A page has a link that leads nowhere."""


def staged() -> dict[str, str]:
    """Returns the text of every page by its path on the site. Raises Broken for links that lead nowhere."""
    sources = {ROOT / name: target for name, target in FROM_THE_TOP.items()}
    sources |= {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))}
    sources |= {path: f"{path.stem}.md" for path in sorted(DOCS.glob("*.ipynb"))}
    pages = {target: linked(path, sources) for path, target in sources.items()}
    pages["cards/index.md"] = cards(pages)
    return pages | {f"reference/{name}.md": reference(*parts) for name, parts in REFERENCE.items()}


def linked(page: Path, sources: Mapping[Path, str]) -> str:
    """Returns a page whose links work on the site; code stays as it is."""

    def moved(found: re.Match[str]) -> str:
        return f"]({address(found[1], page, sources)}{found[2] or ''})"

    text = notebook(page) if page.suffix == ".ipynb" else contents.BLOCK.sub("", page.read_text(encoding="utf-8"))
    made, end = [], 0
    for code in CODE.finditer(text):
        made += [LINK.sub(moved, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*made, LINK.sub(moved, text[end:])])


def handed_out(page: Path) -> str:
    """Returns a page that is HTML already; what it links to outside its folder is found from the site too."""
    own = {page: page.relative_to(DOCS).as_posix()}
    return HREF.sub(lambda found: f'href="{address(found[1], page, own)}"', page.read_text(encoding="utf-8"))


def address(target: str, page: Path, sources: Mapping[Path, str]) -> str:
    """Returns where a link of a page leads on the site: to a page, a file beside it, or into the repository."""
    path = Path(os.path.normpath(page.parent / target))
    if not path.exists() or not path.is_relative_to(ROOT):
        raise Broken(f"{page.relative_to(ROOT)}: '{target}' leads nowhere")
    if path == DOCS / "cards":
        inner = "cards/index.md"
    elif path in sources:
        inner = sources[path]
    elif path.is_relative_to(DOCS) and path.suffix in TAKEN:
        inner = path.relative_to(DOCS).as_posix()
    else:
        return f"{PROJECT['urls']['Repository'].rstrip('/')}/{path.relative_to(ROOT).as_posix()}"
    return Path(os.path.relpath(inner, Path(sources[page]).parent)).as_posix()


def notebook(path: Path) -> str:
    """Returns a notebook as a page, cell after cell, with a link to itself beneath its title."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells]
    first, *others = [f"```python\n{text}\n```" if code else text for text, code in texts]
    return "\n\n".join([first, f'<a href="{path.name}">This page as a notebook</a>', *others])


def cards(pages: Mapping[str, str]) -> str:
    """Returns the list of data cards: their titles, in the order of their files."""
    titles = {name: text.splitlines()[0].lstrip("# ") for name, text in pages.items() if name.startswith("cards/")}
    lines = [f"- [{title}]({name.removeprefix('cards/')})" for name, title in titles.items()]
    return "\n".join(["# Data cards", "", "What is known of each task's [data](../data.md).", "", *lines])


def reference(title: str, modules: tuple[str, ...]) -> str:
    """Returns a page of the reference: mkdocstrings fills it from docstrings."""
    return "\n\n".join([f"# {title}", *(f"::: {module}" for module in modules)])


def settings() -> str:
    """Returns the builder's settings, with the pages of the reference and the address of the project filled in."""
    listed = [f'      {{ "{title}" = "reference/{name}.md" }},' for name, (title, _) in REFERENCE.items()]
    text = SETTINGS.read_text(encoding="utf-8")
    text = text.replace('{ "Python" = [] }', "\n".join(['{ "Python" = [', *listed, "    ] }"]))
    return text.replace("[project]\n", f'[project]\nrepo_url = "{PROJECT["urls"]["Repository"]}"\n', 1)


def stage() -> None:
    """Writes what the builder reads into build/pages, anew."""
    pages = staged()
    shutil.rmtree(BUILD, ignore_errors=True)
    for path in sorted(DOCS.rglob("*")):
        if path.suffix in TAKEN and path.suffix != ".md":
            copy = BUILD / "docs" / path.relative_to(DOCS)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".html":
                copy.write_text(handed_out(path), encoding="utf-8")
            else:
                shutil.copy(path, copy)
    for name, text in pages.items():
        page = BUILD / "docs" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    (BUILD / "zensical.toml").write_text(settings(), encoding="utf-8")


def environment() -> Path:
    """Returns the folder of the builder's programs; makes their environment where it is missing or old."""
    programs, stamp = VENV / ("Scripts" if os.name == "nt" else "bin"), VENV / ".ready"
    wanted = "\n".join([*PROJECT["optional-dependencies"]["docs"], CONSTRAINTS.read_text(encoding="utf-8")])
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print("Installing what builds the site into .venv-docs: a minute now, a moment next time.", flush=True)
        subprocess.check_call([sys.executable, "-m", "venv", "--clear", str(VENV)])
        pip = [str(programs / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.check_call([*pip, "-c", str(CONSTRAINTS), *PROJECT["optional-dependencies"]["docs"]])
        stamp.write_text(wanted, encoding="utf-8")
    return programs


def main() -> str | None:
    """Returns what went wrong, in one sentence, or None."""
    try:
        stage()
        if "--stage" in sys.argv:
            return None
        build = [str(environment() / "zensical"), "build", "--strict", "--clean"]
        subprocess.check_call(build, cwd=BUILD)
        shutil.rmtree(SITE, ignore_errors=True)
        (BUILD / "site").rename(SITE)
    except Broken as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        return f"The site was not built: '{Path(error.cmd[0]).name}' failed (see above)."
    site = SITE.relative_to(ROOT).as_posix()
    print(f"Wrote {site}/index.html. Its search needs a server: python3 -m http.server -d {site}")
    return None


if __name__ == "__main__":
    sys.exit(main())
