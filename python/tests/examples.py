"""The examples of python/README.md."""

from __future__ import annotations

import re
from typing import NamedTuple

from conftest import ROOT

README = ROOT / "python" / "README.md"


class Example(NamedTuple):
    line: int  # of the page, of its first line
    code: str

    @property
    def printed(self) -> list[str]:
        """What its prints print, which is behind them."""
        return re.findall(r"^\s*print\(.*\)  # (.*)$", self.code, re.M)

    @property
    def torch(self) -> bool:
        return "torch" in self.code

    @property
    def gpu(self) -> bool:
        return "cuda:0" in self.code


def examples() -> list[Example]:
    text = README.read_text()
    return [
        Example(text.count("\n", 0, found.start(1)) + 1, found[1])
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.S | re.M)
    ]
