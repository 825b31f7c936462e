from __future__ import annotations

import pathlib
import re

import pytest

from ringcache import CountRule, ItemForm, UnknownVersionError, lookup, newest, releases, treat_as
from ringcache.generation import resolve

GO = pathlib.Path(__file__).resolve().parents[2] / "pycompat"


@pytest.mark.parametrize(
    ("version", "offset", "counting", "form"),
    [
        ("0.11.0", 0, CountRule.PER_USE, ItemForm.POSITIONAL),
        ("0.11.2", 0, CountRule.PER_USE, ItemForm.POSITIONAL),
        ("0.12.0", 0, CountRule.TOUCH, ItemForm.POSITIONAL),
        ("0.13.0", 0, CountRule.TOUCH, ItemForm.KEYED),
        ("0.15.1", 0, CountRule.TOUCH, ItemForm.KEYED),
        ("0.16.0", 0, CountRule.TOUCH, ItemForm.MAP),
        ("0.31.0", 0, CountRule.TOUCH, ItemForm.MAP),
        ("0.32.0", 32, CountRule.PER_ADDRESS, ItemForm.MAP),
        ("0.33.0", 32, CountRule.PER_ADDRESS, ItemForm.MAP),
    ],
)
def test_table(version: str, offset: int, counting: CountRule, form: ItemForm) -> None:
    g = lookup(version)
    assert (g.version, g.data_offset, g.counting, g.item_form) == (version, offset, counting, form)
    assert g.signed == (offset == 32)
    assert g.ids_restart == (offset == 0)


@pytest.mark.parametrize("text", ["v0.32.0", "0.32.0+cpu", "0.32.0.post1", "v0.32.0.post12+cu130"])
def test_spellings(text: str) -> None:
    assert lookup(text).version == "0.32.0"


@pytest.mark.parametrize("text", ["", "0.34.0", "0.32", "0.32.0rc1", "0.33.0.dev1", "0.32.0.post"])
def test_unknown(text: str) -> None:
    with pytest.raises(UnknownVersionError, match=re.escape(newest().version)):
        lookup(text)


def test_treat_as() -> None:
    g = treat_as("0.99.0", "0.31.0")
    assert g.version == "0.99.0"
    assert g.same_wire(lookup("0.16.0"))
    assert not g.same_wire(lookup("0.32.0"))
    assert resolve("") == newest()
    assert resolve(g) is g


@pytest.mark.skipif(not GO.exists(), reason="outside the repository")
def test_same_releases_and_changes_as_go() -> None:
    listed = re.search(r"^var releases = build\((.*?)\n\)", (GO / "releases.go").read_text(), re.S | re.M)
    assert listed
    assert re.findall(r'"(\d[\d.]+)"', listed.group(1)) == [g.version for g in releases()]
    before = None
    changed = []
    for g in releases():
        wire = (g.data_offset, g.signed, g.counting, g.item_form, g.ids_restart, g.feature_hash)
        if wire != before:
            changed.append(g.version)
        before = wire
    # Go's table has more changes: of names, hashes and caches, which are no reader's affair.
    parts = re.split(r'^\t\{"(\d[\d.]+)", func', (GO / "changes.go").read_text(), flags=re.M)
    wire_field = re.compile(r"g\.(DataOffset|Signed|Counting|ItemForm|IDsRestart|FeatureHash)\b")
    assert [v for v, body in zip(parts[1::2], parts[2::2], strict=True) if wire_field.search(body)] == changed
