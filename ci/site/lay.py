"""Lays the pages of the site out for mdBook, and checks the links of what mdBook has made of them.

`lay.py pages ROOT BOOK` copies each page that docs/SUMMARY.md names to BOOK/src, below the path that it has in the
repository. A link to a file that is no page leads to the repository, or is plain text as long as that has no address.
The pages of the references get their generated part. `lay.py links SITE` fails if a link of a page leads nowhere.
"""

from __future__ import annotations

import ast
import html.parser
import posixpath
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

CRATES = ["pipewright", "pipewright-batch", "pipewright-cluster", "pipewright-disk", "pipewright-ipc"]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def outside_of_code(text: str, change: re.Pattern[str], by) -> str:
    """Replaces matches in the lines that are in no block of code."""
    lines, fence = [], ""
    for line in text.splitlines(keepends=True):
        mark = re.match(r" *(```+|~~~+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        elif not fence:
            line = change.sub(by, line)
        lines.append(line)
    return "".join(lines)


def page(path: str) -> str:
    """The path of a page in the book: mdBook makes the index of a folder of its README."""
    return posixpath.join(posixpath.dirname(path), "index.md") if posixpath.basename(path) == "README.md" else path


def lay(root: Path, book: Path) -> None:
    shutil.rmtree(book, ignore_errors=True)
    source = book / "src"
    summary = (root / "docs/SUMMARY.md").read_text(encoding="utf-8")
    targets = [posixpath.normpath(posixpath.join("docs", link)) for _, _, link in LINK.findall(summary)]
    pages = set(targets)
    repository = re.search(r'^repository = "(.*)"', (root / "Cargo.toml").read_text(encoding="utf-8"), re.M)[1]

    for path in targets:
        folder, here = posixpath.dirname(path), posixpath.dirname(page(path))

        def lead(link: re.Match[str]) -> str:
            is_image, text, target = link.groups()
            split = urlsplit(target)
            if split.scheme or not split.path:
                return link[0]
            file = posixpath.normpath(posixpath.join(folder, split.path))
            if is_image:
                (source / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / file, source / file)
            elif file not in pages:
                return f"[{text}]({repository}/blob/main/{file})" if repository else text
            anchor = f"#{split.fragment}" if split.fragment else ""
            return f"{is_image}[{text}]({posixpath.relpath(page(file), here or '.')}{anchor})"

        text = outside_of_code((root / path).read_text(encoding="utf-8"), LINK, lead)
        if path == "docs/python-reference.md":
            text += python_reference(root / "python/pipewright")
        if path == "docs/rust-reference.md":
            text += "".join(f"* [{name}](../rust/{name.replace('-', '_')}/index.html)\n" for name in CRATES)
        to = source / page(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text, encoding="utf-8")

    def from_here(link: re.Match[str]) -> str:
        return f"[{link[2]}]({page(posixpath.normpath(posixpath.join('docs', link[3])))})"

    (source / "SUMMARY.md").write_text(LINK.sub(from_here, summary), encoding="utf-8")
    settings = (root / "docs/book.toml").read_text(encoding="utf-8")
    if repository:
        settings = settings.replace("[output.html]\n", f'[output.html]\ngit-repository-url = "{repository}"\n', 1)
    (book / "book.toml").write_text(settings, encoding="utf-8")
    shutil.copy(root / "docs/site.css", book / "site.css")
    print(f"{len(pages)} pages")


def python_reference(package: Path) -> str:
    """Each public name of the Python package, with its arguments and its docstring, read from the sources."""
    parts = []
    for module in ("__init__", "ipc"):
        tree = ast.parse((package / f"{module}.py").read_text(encoding="utf-8"))
        name = "pipewright" if module == "__init__" else f"pipewright.{module}"
        parts.append(f"\n## {name}\n\n{prose(ast.get_docstring(tree))}")
        origin = {"": tree}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pipewright."):
                file = package / f"{node.module.split('.')[1]}.py"
                if file.exists():
                    origin.update({it.asname or it.name: ast.parse(file.read_text("utf-8")) for it in node.names})
        public = next(
            [ast.literal_eval(it) for it in node.value.elts]
            for node in tree.body
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        )
        for word in public:
            found = [it for it in ast.walk(origin.get(word, tree)) if getattr(it, "name", None) == word]
            found = [it for it in found if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
            if found:
                # Of a function with overloads, the last one is the function itself.
                parts.append(entry(found[-1], 3))
    return "\n".join(parts)


def entry(node: ast.AST, level: int) -> str:
    text = f"\n{'#' * level} {node.name}\n"
    if isinstance(node, ast.ClassDef):
        bases = [it for it in map(ast.unparse, node.bases) if not it.startswith(("Generic", "_"))]
        text += f"\n```python\nclass {node.name}{'(' + ', '.join(bases) + ')' if bases else ''}\n```\n"
    else:
        word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        text += f"\n```python\n{word} {node.name}({ast.unparse(node.args)}){returns}\n```\n"
    text += prose(ast.get_docstring(node))
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            is_function = isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef))
            if is_function and not inner.name.startswith("_") and ast.get_docstring(inner):
                text += f"\n**`{inner.name}({ast.unparse(inner.args)})`**\n" + prose(ast.get_docstring(inner))
    return text


def prose(text: str | None) -> str:
    """A docstring as Markdown: its examples become blocks of code."""
    lines, is_code = [""], False
    for line in (text or "").splitlines():
        if line.startswith(">>>") and not is_code:
            lines += ["", "```python"]
            is_code = True
        if is_code and not line.strip():
            lines.append("```")
            is_code = False
        lines.append(line if is_code else re.sub(r"([<>*])", r"\\\1", line.replace("``", "`")))
    return "\n".join([*lines, *(["```"] if is_code else []), ""])


class Page(html.parser.HTMLParser):
    """The anchors of a page, and its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = {""}
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            if name in ("href", "src") and value:
                self.links.append(value)


def check(site: Path) -> None:
    files = [file for file in site.rglob("*.html") if file.relative_to(site).parts[0] != "rust"]
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in files}
    wrong, count = [], 0
    for file, found in pages.items():
        for link in found.links:
            split = urlsplit(link)
            if split.scheme or split.netloc or file.name in ("404.html", "toc.html"):
                continue
            count += 1
            to = (file.parent / unquote(split.path)).resolve() if split.path else file
            known = pages.get(to)
            if not to.exists() or known and unquote(split.fragment) not in known.ids:
                wrong.append(f"{file.relative_to(site)}: {link}")
    if wrong:
        sys.exit("these links of the site lead nowhere:\n" + "\n".join(sorted(set(wrong))))
    print(f"{count} links of {len(pages)} pages lead somewhere")


if __name__ == "__main__":
    if sys.argv[1] == "pages":
        lay(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        check(Path(sys.argv[2]).resolve())
