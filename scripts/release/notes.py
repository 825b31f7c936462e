#!/usr/bin/env python3
"""Prints the notes of a release: the part of CHANGELOG.md under the version's heading, without the heading.

    scripts/release/notes.py v0.1.0

Lines of a paragraph are joined, since the page of a release shows every line end. With --tagged the heading must have a date.
"""

import argparse
import pathlib
import re
import sys

CHANGELOG = pathlib.Path(__file__).resolve().parents[2] / "CHANGELOG.md"


def notes(text: str, version: str, tagged: bool = False) -> str:
    version = version.removeprefix("v")
    sections = re.split(r"^## (.*)\n", text, flags=re.M)
    for heading, body in zip(sections[1::2], sections[2::2]):
        found = re.fullmatch(r"(\S+) \((unreleased|\d{4}-\d\d-\d\d)\)", heading)
        if not found:
            raise SystemExit(f"notes: CHANGELOG.md has the heading {heading!r}: write VERSION (unreleased) or VERSION (YYYY-MM-DD)")
        if found[1] != version:
            continue
        if tagged and found[2] == "unreleased":
            raise SystemExit(f"notes: CHANGELOG.md calls {version} unreleased: write its date before the tag")
        joined = re.sub(r"(?<=\S)\n[ ]*(?=[^\s#*|>-])", " ", body.strip())
        if not joined:
            raise SystemExit(f"notes: CHANGELOG.md has nothing under {version}")
        # Links to files of the repository lead nowhere on the page of a release.
        return re.sub(r"\]\((?!https?:|#)", f"](https://github.com/ringcache/ringcache/blob/v{version}/", joined) + "\n"
    raise SystemExit(f"notes: CHANGELOG.md has no heading for {version}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("version")
    parser.add_argument("--tagged", action="store_true")
    a = parser.parse_args()
    sys.stdout.write(notes(CHANGELOG.read_text(), a.version, a.tagged))
