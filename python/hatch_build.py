"""The build hook that puts the command ringcache into wheels.

With RINGCACHE_BINARY, the path of a static Linux program, the wheel is for the processor that the program is for. Without it the wheel
is for any machine, and its command explains where the real one comes from. RINGCACHE_SBOM is the program's SBOM, if there is one.
scripts/release/wheel.sh builds both.
"""

from __future__ import annotations

import os
import pathlib
import struct
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of an ELF file
PT_DYNAMIC, PT_INTERP = 2, 3


def machine_of(program: pathlib.Path) -> str:
    """The processor of a static program, or a ValueError: a program that needs a C library runs with one of them only."""
    head = program.read_bytes()[:4096]
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{program} is no 64-bit program of Linux")
    (machine,) = struct.unpack_from("<H", head, 18)
    if machine not in MACHINES:
        raise ValueError(f"{program} is for machine {machine} of ELF, wheels are for {sorted(MACHINES.values())}")
    (start,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    for i in range(count):
        (kind,) = struct.unpack_from("<I", head, start + i * size)
        if kind in (PT_DYNAMIC, PT_INTERP):
            raise ValueError(f"{program} is linked dynamically: build it with CGO_ENABLED=0")
    return MACHINES[machine]


class CustomBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        binary = os.environ.get("RINGCACHE_BINARY")
        if not binary:
            build_data["shared_scripts"]["command/no_command.py"] = "ringcache"
            return
        program = pathlib.Path(binary).resolve()
        machine = machine_of(program)
        build_data["shared_scripts"][str(program)] = "ringcache"
        build_data["pure_python"] = False
        if sbom := os.environ.get("RINGCACHE_SBOM"):
            build_data["sbom_files"].append(sbom)
        # A static program needs neither glibc nor musl: one wheel is for both.
        # See docs/decisions.md, "The command is a file of the wheel".
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.musllinux_1_1_{machine}"
