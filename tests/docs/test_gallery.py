"""docs/gallery.md: every way to answer and to decode, with its picture and what it needs, from the pages themselves.

python -m tests.docs.test_gallery      # writes it anew
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from metagen.runs.declare import words
from tests.docs.llms import ROOT, _Loader, first_sentence, pages
from tests.docs.test_kinds import FENCE, defined

DOCS = ROOT / "docs"
PAGE = DOCS / "gallery.md"
#: Pages without a method of their own.
LEFT_OUT = ("index", "gallery", "equal_compute", "countdown", "programs", "degeneration", "likelihood")
#: What a reader may filter by: the class of a card, and the words of its button.
FILTERS = {
    "verifier": "needs a verifier",
    "free": "needs no verifier",
    "steps": "works by steps",
    "logits": "needs the model's logits",
}
HEAD = """<!-- Written by python -m tests.docs.test_gallery: change the pages, and write it anew. -->
# Gallery

Every strategy and every way to decode has a page, with its picture, its cost, Python and YAML. Choose by what you have.

"""


def needs(section: str, text: str) -> list[str]:
    """Filters that a page passes, by the kinds of strategies that its experiment files define."""
    if section == "Decoding":
        return ["free", "logits"]
    kinds = set()
    for block in FENCE.findall(text):
        data = yaml.safe_load(block)
        kinds |= {
            kind for part, kind in defined(data if isinstance(data, dict) else {}) if part == "strategies"
        }
    found = set()
    for kind in kinds:
        fields = {field.name: field for field in words.fields_of("strategies", kind)}
        judged = "verifier" in fields and fields["verifier"].needed
        found |= {"verifier" if judged else "free"} | (
            {"steps"} if {"step", "until"} & fields.keys() else set()
        )
    return [name for name in FILTERS if name in found]


def page() -> str:
    config = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _Loader)
    buttons = ['<label><input type="radio" name="needs" id="all" checked>all</label>']
    buttons += [
        f'<label><input type="radio" name="needs" id="{name}">{said}</label>'
        for name, said in FILTERS.items()
    ]
    rules = "\n".join(
        f".gallery:has(#{name}:checked) .method:not(.{name}) {{ display: none; }}" for name in FILTERS
    )
    out = [HEAD + '<div class="gallery" markdown>\n', "".join(buttons), ""]
    last = ""
    for section, title, path in pages(config["nav"]):
        if section not in ("Strategies", "Decoding") or Path(path).stem in LEFT_OUT:
            continue
        text = (DOCS / path).read_text("utf-8")
        if section != last:
            out.append(f'{"</div>" if last else ""}\n\n## {section}\n\n<div class="methods" markdown>\n')
            last = section
        own = needs(section, text)
        picture = re.search(r"!\[((?:[^\]]|\\\])*)\]\(\.\./(images/[^)\s]+)\)", text)
        assert picture is not None, path
        shown = f"[![{picture[1]}]({picture[2]}){{ loading=lazy }}]({path})"
        out += [
            f'<div class="method {" ".join(own)}" markdown>',
            f"{shown}\n\n**[{title}]({path})**\n\n{first_sentence(text)}\n",
            "</div>\n",
        ]
    out += ["</div>\n</div>\n", f"<style>\n{STYLE}{rules}\n</style>"]
    return "\n".join(out) + "\n"


STYLE = """.methods { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); }
.method { border: 1px solid var(--md-default-fg-color--lightest); border-radius: .4rem; padding: .8rem; }
.method img { background: #fff; height: 8rem; object-fit: contain; width: 100%; }
.method p { margin: .4rem 0; }
.gallery input { accent-color: var(--md-primary-fg-color); margin: 0 .3rem 0 0; }
.gallery label { margin-right: 1.2rem; white-space: nowrap; }
"""


def test_the_gallery_is_that_of_the_pages() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tests.docs.test_gallery writes it anew"


def test_every_filter_finds_some_and_leaves_some_out() -> None:
    cards = re.findall(r'<div class="method ([^"]*)"', page())
    assert len(cards) > 45
    for name in FILTERS:
        assert 0 < sum(name in card.split() for card in cards) < len(cards), name
    by_page = dict(re.findall(r'<div class="method ([^"]*)" markdown>\n\[!.*?\]\(([^)]*)\)\n', page()))
    found = {path: tags.split() for tags, path in by_page.items()}
    for path, tags in {
        "strategies/rebase.md": ["verifier", "steps"],
        "strategies/mbr.md": ["free"],
        "strategies/best_of_n.md": ["verifier"],
        "strategies/voting.md": ["verifier", "free"],
        "decoding/mirostat.md": ["free", "logits"],
    }.items():
        assert found.get(path, tags) == tags, path


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
