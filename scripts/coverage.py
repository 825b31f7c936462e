#!/usr/bin/env python3
"""Prints how many statements of each package of the core its tests reach.

The columns: the package's own tests, in their process; the same with the processes that they start of themselves;
the tests of all packages of the module; those with their processes. A process that is killed with SIGKILL, as many
are here on purpose, can't write what it reached, so what only such a process runs is missing everywhere. Programs
that tests build are not counted either.

The status is 1 if a test fails, or if a package is below --least in the last column.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Without internal/failpoint, which production builds leave out and which runs in processes that are about to be killed.
CORE = """shmring shmring/segment shmring/memory shmstore objstore objstore/check objstore/upstream serde serde/enginecore mmhash lrusync
lrusync/upstream tier tier/memory tier/disk tier/folder tier/internal/remote tier/redis tier/s3 encoder encoder/safetensors kv blend blend/rope blend/transformer blend/chunks kv/flow kv/paged lmcache/engine lmcache/lookup mmcache pycompat pin pin/cuda engine engine/zmq agent internal/blake3 internal/closing internal/codec internal/evict
internal/fault internal/futex internal/invariants internal/leasetable internal/line internal/loglimit internal/lru internal/mem
internal/msgpackguard internal/pyset internal/pyvalue internal/shapes internal/shmfile internal/sidecar internal/payload internal/ctxmutex internal/zmtp""".split()

Block = "tuple[str, str]"  # of the file, with its package in front, and the range of lines


def blocks(profile: pathlib.Path) -> "tuple[dict[Block, int], set[Block]]":
    """Returns the number of statements of each block, and which blocks were reached."""
    sizes, reached = {}, set()
    for line in profile.read_text().splitlines()[1:]:
        place, size, count = line.rsplit(" ", 2)
        file, _, lines = place.rpartition(":")
        sizes[file, lines] = int(size)
        if int(count):
            reached.add((file, lines))
    return sizes, reached


def package_of(block: "Block") -> str:
    return block[0].rpartition("/")[0]


class Run:
    def __init__(self, module: str, core: "list[str]", tags: str, work: pathlib.Path) -> None:
        self.module, self.core, self.tags, self.work = module, core, tags, work
        self.sizes: "dict[Block, int]" = {}
        self.own: "dict[bool, set[Block]]" = {False: set(), True: set()}  # with children?
        self.all: "dict[bool, set[Block]]" = {False: set(), True: set()}
        self.failed: "list[str]" = []

    def test(self, package: str, folder: str) -> None:
        program, profile = self.work / "a.test", self.work / "profile"
        # The path of the data is in the environment of all that the tests start.
        children = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        built = subprocess.run(["go", "test", "-c", "-vet=off", "-o", program, f"-tags={self.tags}", "-cover",
                                "-coverpkg=" + ",".join(f"{self.module}/{p}" for p in self.core), package],
                                stderr=subprocess.PIPE, text=True)
        if built.returncode:
            sys.exit(built.stderr)  # else it only lists the packages that this one does not use
        done = subprocess.run([program, f"-test.coverprofile={profile}", "-test.timeout=30m"], cwd=folder,
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "GOCOVERDIR": str(children)}, text=True, errors="replace")
        if done.returncode:
            print(done.stdout)
            self.failed.append(package)
        print(f"{package}: {'failed' if done.returncode else 'done'}", file=sys.stderr, flush=True)
        if profile.exists():
            self.add(package, profile, (False, True))
            profile.unlink()
        if any(children.iterdir()):
            text = self.work / "children"
            subprocess.run(["go", "tool", "covdata", "textfmt", f"-i={children}", f"-o={text}"], check=True)
            self.add(package, text, (True,))

    def add(self, package: str, profile: pathlib.Path, kinds: "tuple[bool, ...]") -> None:
        sizes, reached = blocks(profile)
        self.sizes.update(sizes)
        for with_children in kinds:
            self.all[with_children] |= reached
            self.own[with_children] |= {b for b in reached if package_of(b) == package}

    def percent(self, package: str, reached: "set[Block]") -> float:
        of = [b for b in self.sizes if package_of(b) == f"{self.module}/{package}"]
        total = sum(self.sizes[b] for b in of)
        return 100 * sum(self.sizes[b] for b in of if b in reached) / total if total else 100

    def print_table(self, least: float) -> "list[str]":
        low = []
        print(f"{'package':24}{'own':>8}{'+ started':>11}{'all':>8}{'+ started':>11}{'statements':>12}")
        for package in self.core:
            total = sum(n for b, n in self.sizes.items() if package_of(b) == f"{self.module}/{package}")
            if not total:
                continue  # nothing that ran uses it
            p = [self.percent(package, s) for s in (self.own[False], self.own[True], self.all[False], self.all[True])]
            print(f"{package:24}{p[0]:8.1f}{p[1]:11.1f}{p[2]:8.1f}{p[3]:11.1f}{total:12}" + ("   below" if p[3] < least
                else ""))
            if p[3] < least:
                low.append(package)
        total = sum(self.sizes.values())
        print(f"{'together':24}{'':27}{100 * sum(self.sizes[b] for b in self.all[True]) / max(total, 1):11.1f}{total:12}")
        return low

    def print_uncovered(self, root: pathlib.Path) -> None:
        by_file = collections.defaultdict(list)
        for block in self.sizes:
            if block not in self.all[True]:
                by_file[block[0][len(self.module) + 1:]].append(tuple(int(n) for n in re.findall(r"\d+", block[1])))
        for file in sorted(by_file):
            lines = (root / file).read_text().splitlines()
            for first, column, last, _, *_ in sorted(by_file[file]):
                text = lines[first - 1][column - 1:].strip() if first == last else lines[first - 1].strip() + " " + lines[first].strip()
                print(f"{file}:{first}: {text}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=["./..."], help="whose tests run (default: %(default)s)")
    parser.add_argument("--tags", default="failpoints,invariants", help="build tags (default: %(default)s)")
    parser.add_argument("--least", type=float, default=90, metavar="PERCENT", help="default: %(default)s")
    parser.add_argument("--uncovered", action="store_true", help="print each statement that nothing reaches")
    options = parser.parse_args()
    go = lambda *a: subprocess.run(["go", "list", f"-tags={options.tags}", *a], stdout=subprocess.PIPE, text=True,
                                   check=True).stdout.splitlines()
    module = go("-m")[0]
    with tempfile.TemporaryDirectory(prefix="coverage-") as work:
        run = Run(module, CORE, options.tags, pathlib.Path(work))
        for line in go("-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}", *options.packages):
            run.test(*line.split(" ", 1))
        low = run.print_table(options.least)
    if options.uncovered:
        run.print_uncovered(pathlib.Path.cwd())
    for package in run.failed:
        print(f"the tests of {package} failed")
    for package in low:
        print(f"{package} is below {options.least:.0f} %")
    return 1 if run.failed or low else 0


if __name__ == "__main__":
    sys.exit(main())
