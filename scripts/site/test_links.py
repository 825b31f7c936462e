#!/usr/bin/env python3
"""What links.py reports of a site that is right, and of each fault."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import links  # noqa: E402

REPOSITORY = "https://github.com/ringcache/ringcache/blob/main/"


class Links(unittest.TestCase):
    def check(self, body: str, style: str = "") -> "tuple[dict[str, int], dict[str, int], list[str]]":
        with tempfile.TemporaryDirectory() as folder:
            site = pathlib.Path(folder).resolve()
            (site / "page.html").write_text(body)
            (site / "other.html").write_text('<h2 id="here"></h2>')
            (site / "style.css").write_text(style)
            return links.check(site)

    def test_what_is_right(self) -> None:
        counts, hosts, wrong = self.check(
            '<link rel="stylesheet" href="style.css"><a href="other.html#here"></a><a href="#top"></a><p id="top">'
            f'<a href="{REPOSITORY}docs/index.md#x"></a><a href="https://example.com/a"></a><img src="data:image/png;base64,">')
        self.assertEqual(wrong, [])
        self.assertEqual(dict(hosts), {"example.com": 1})
        self.assertEqual({"pages": 2, "links": 2, "parts": 2, "files": 1, "elsewhere": 1}, dict(counts))

    def test_each_fault(self) -> None:
        for body, want in {
            '<a href="gone.html"></a>': "gone.html: no such file",
            '<a href="other.html#gone"></a>': "other.html#gone: no such place on the page",
            '<a href="#gone"></a>': "#gone: no such place on the page",
            '<img src="gone.svg">': "gone.svg: no such file",
            f'<a href="{REPOSITORY}gone.go"></a>': "gone.go: no such file in the repository",
            '<script src="https://example.com/a.js"></script>': "https://example.com/a.js: loaded from elsewhere",
            '<script src="//example.com/a.js"></script>': "//example.com/a.js: loaded from elsewhere",
            '<link rel="stylesheet" href="https://example.com/a.css">': "https://example.com/a.css: loaded from elsewhere",
            '<img src="https://example.com/a.png">': "https://example.com/a.png: loaded from elsewhere",
        }.items():
            with self.subTest(body):
                _, _, wrong = self.check(body)
                self.assertEqual(len(wrong), 1)
                self.assertTrue(wrong[0].startswith("page.html: ") and wrong[0].endswith(want), wrong)

    def test_styles_load_nothing_from_elsewhere(self) -> None:
        for style in '@import "https://example.com/a.css";', "p { background: url(https://example.com/a.png) }":
            with self.subTest(style):
                self.assertEqual(len(self.check("", style)[2]), 1)
        self.assertEqual(self.check("", "p { background: url(data:image/png;base64,) }")[2], [])


if __name__ == "__main__":
    unittest.main()
