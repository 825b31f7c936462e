"""What differs between the releases of vLLM, in one table.

The rest of the package asks a :class:`Generation` and compares no versions.
The table is the same as the Go library's (package ``pycompat``).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from .errors import UnknownVersionError


class CountRule(enum.Enum):
    """How a reader counts its uses of a chunk."""

    PER_USE = "per-use"  # 0.11: one for every get
    TOUCH = "touch"  # 0.12 to 0.31: touch counts too once every reader has read
    PER_ADDRESS = "per-address"  # 0.32 on: one for every get; touch only checks


class ItemForm(enum.Enum):
    """How a MultiModalKwargsItem is laid out in MessagePack."""

    POSITIONAL = "positional"  # 0.11, 0.12: array of elems; field [name, *args]
    KEYED = "keyed"  # 0.13 to 0.15: array of elems; field [name, {args}]
    MAP = "map"  # 0.16 on: {key: {data, field}}; field [name, {args}]


@dataclass(frozen=True)
class Generation:
    """One release of vLLM and everything in which its wire can differ."""

    version: str
    #: Bytes in front of the ring. Where it is 32 they are the signing secret,
    #: and a segment for a ring of N bytes is N + 32 bytes long.
    data_offset: int
    #: Handles carry an HMAC-SHA256 signature.
    signed: bool
    counting: CountRule
    #: Clearing the cache restarts chunk ids at 0.
    ids_restart: bool
    item_form: ItemForm
    #: A feature spec has the field ``mm_hash``.
    feature_hash: bool

    def same_wire(self, other: Generation) -> bool:
        """Whether a writer of one and a reader of the other understand each other."""
        return (self.data_offset, self.signed, self.counting, self.item_form) == (
            other.data_offset,
            other.signed,
            other.counting,
            other.item_form,
        )


# A change names the first release that has it.
_FIRST: Final = Generation(
    version="0.11.0",
    data_offset=0,
    signed=False,
    counting=CountRule.PER_USE,
    ids_restart=True,
    item_form=ItemForm.POSITIONAL,
    feature_hash=False,
)
_CHANGES: Final[dict[str, dict[str, Any]]] = {
    "0.12.0": {"counting": CountRule.TOUCH},
    "0.13.0": {"item_form": ItemForm.KEYED},
    "0.14.0": {"feature_hash": True},
    "0.16.0": {"item_form": ItemForm.MAP},
    "0.32.0": {
        "data_offset": 32,
        "signed": True,
        "counting": CountRule.PER_ADDRESS,
        "ids_restart": False,
    },
}
_RELEASES: Final = (
    "0.11.0 0.11.1 0.11.2 0.12.0 0.13.0 0.14.0 0.14.1 0.15.0 0.15.1 0.16.0 0.17.0 0.17.1 0.18.0 "
    "0.18.1 0.19.0 0.19.1 0.20.0 0.20.1 0.20.2 0.21.0 0.22.0 0.22.1 0.23.0 0.24.0 0.25.0 0.25.1 "
    "0.26.0 0.27.0 0.27.1 0.28.0 0.29.0 0.30.0 0.31.0 0.32.0 0.33.0"
).split()


def _build() -> dict[str, Generation]:
    table: dict[str, Generation] = {}
    current = _FIRST
    for version in _RELEASES:
        current = replace(current, version=version, **_CHANGES.get(version, {}))
        table[version] = current
    return table


_TABLE: Final = _build()


def releases() -> tuple[Generation, ...]:
    """Every known release, oldest first."""
    return tuple(_TABLE.values())


def newest() -> Generation:
    """The newest known generation."""
    return _TABLE[_RELEASES[-1]]


def lookup(version: str) -> Generation:
    """The generation of a vLLM release.

    The version may be written as vLLM reports it: a leading ``v``, a local part
    (``+cpu``) and a post release (``.post1``) are ignored. Anything else that is
    not in the table, release candidates and development versions included,
    raises :class:`UnknownVersionError`.
    """
    if not isinstance(version, str):
        raise UnknownVersionError(
            f"vLLM version must be a str such as {_RELEASES[-1]!r}, got {type(version).__name__}"
        )
    plain = version.removeprefix("v").partition("+")[0]
    plain = re.sub(r"\.post[0-9]+\Z", "", plain)
    found = _TABLE.get(plain)
    if found is None:
        raise UnknownVersionError(
            f"vLLM version {version!r} is not known (newest known: {_RELEASES[-1]}, oldest: "
            f"{_RELEASES[0]}); if its wire is that of a known release, say so with treat_as"
        )
    return found


def treat_as(version: str, known: str) -> Generation:
    """The generation of the release ``known``, for an engine of another version.

    The caller answers for it that the wire is the same.
    """
    if not isinstance(version, str):
        raise UnknownVersionError(
            f"version of the engine must be a str, got {type(version).__name__}"
        )
    return replace(lookup(known), version=version)


def resolve(generation: str | Generation) -> Generation:
    """A generation from a version; the newest one from an empty string."""
    if isinstance(generation, Generation):
        return generation
    return newest() if isinstance(generation, str) and not generation else lookup(generation)
