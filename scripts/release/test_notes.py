#!/usr/bin/env python3
"""What notes.py makes of a changelog, and of CHANGELOG.md itself."""

import re
import unittest

from notes import CHANGELOG, notes

TEXT = """# Changelog

Intro.

## 0.2.0 (unreleased)

New.

## 0.1.0 (2026-12-01)

The first version,
in two lines.

### New

- one, which goes
  on ([page](docs/a.md))
- two ([out](https://example.org))
"""


class Notes(unittest.TestCase):
    def test_a_version_is_its_part_with_joined_lines_and_whole_links(self) -> None:
        self.assertEqual(notes(TEXT, "v0.1.0", tagged=True), (
            "The first version, in two lines.\n\n### New\n\n"
            "- one, which goes on ([page](https://github.com/ringcache/ringcache/blob/v0.1.0/docs/a.md))\n"
            "- two ([out](https://example.org))\n"))

    def test_what_can_not_be_released(self) -> None:
        for text, version, why in (
                (TEXT, "0.2.0", "unreleased"),
                (TEXT, "0.3.0", "no heading for 0.3.0"),
                (TEXT.replace("(2026-12-01)", "of December"), "0.1.0", "has the heading '0.1.0 of December'"),
                (TEXT.replace("New.\n", ""), "0.2.0", "nothing under 0.2.0")):
            with self.assertRaisesRegex(SystemExit, re.escape(why)):
                notes(text, version, tagged=why == "unreleased")

    def test_the_changelog_has_the_form(self) -> None:
        text = CHANGELOG.read_text()
        newest = re.search(r"^## (\S+)", text, re.M)
        assert newest
        got = notes(text, newest[1])
        self.assertNotIn("\n## ", got)
        self.assertNotRegex(got, r"\]\((?!https?:)")
        for line in got.splitlines():
            self.assertNotRegex(line, r"^ ", "a line that was not joined")


if __name__ == "__main__":
    unittest.main()
