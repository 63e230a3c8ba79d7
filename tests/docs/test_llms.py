"""The site for language models: every page is in it, with a sentence about it, and every link leads to a file."""

import re
from pathlib import Path

import yaml

from tests.docs import llms


def test_every_page_is_listed_and_its_source_is_there(tmp_path: Path) -> None:
    llms.write(tmp_path)
    short, full = ((tmp_path / name).read_text("utf-8") for name in ("llms.txt", "llms-full.txt"))
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)(: \S.*)?$", short, re.M)
    listed = {path for path, _ in links}
    nav = yaml.load((llms.ROOT / "mkdocs.yml").read_text("utf-8"), llms._Loader)["nav"]
    assert listed == {path for _, _, path in llms.pages(nav)} and len(listed) > 100
    assert len(links) == len(listed)
    for path, said in links:
        source = (llms.ROOT / "docs" / path).read_text("utf-8")
        assert (tmp_path / path).read_text("utf-8") == source
        assert said or path.startswith("reference/"), path
        assert (source.strip() in full) is not path.startswith(llms.LEFT_OUT)


def test_sentences() -> None:
    assert llms.first_sentence("# T\n\n![p](p.svg)\n\nA [b](c.md) d. E f.") == "A b d."
    assert (
        llms.first_sentence("# T\n\n```python\nx = 1\n\ny\n```\n\n| a |\n\nOne\ntwo: three")
        == "One two: three"
    )
    assert llms.first_sentence("# T\n") == ""
