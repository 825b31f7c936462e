#!/usr/bin/env python3
"""Puts deliberate bugs into the code, one at a time, and shows that the tests notice each.

The bugs are in scripts/mutations/*.toml: a name, a file, the text that is replaced, its replacement, and what the bug
would do to a user. The text must be in its file exactly once, so that a list which is older than the code fails. It is
a list, and not a tool that changes operators at random: that makes thousands of bugs, many of which change nothing.

A bug is applied with `go build -overlay`, so the working tree stays as it is. The tests of the package that has the
bug run first, then those of the packages of this module that import it, the nearest first, until a test fails. Each
package's tests must have passed without a bug before, in this run. A test that fails with a bug runs again without
it, and counts only if it passes then. A test that never ends counts as killing the bug, and is reported as that.

The status is 1 if a bug survives, does not compile or does not apply, or if tests fail without one.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

FIELDS = {"name", "file", "old", "new", "harm"}


class Broken(Exception):
    """What makes the whole run worthless: a list that does not fit, tests that fail as they are."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    harm: str  # what a user would see

    def apply(self, root: pathlib.Path) -> str:
        """Returns the file with the bug."""
        try:
            source = (root / self.file).read_text()
        except OSError as e:
            raise Broken(f"{self.name}: {e}") from e
        if source.count(self.old) != 1:
            raise Broken(f"{self.name}: its text is {source.count(self.old)} times in {self.file}, not once")
        return source.replace(self.old, self.new)


def load(lists: "list[pathlib.Path]", root: pathlib.Path) -> "list[Mutant]":
    mutants: "dict[str, Mutant]" = {}
    stale = []
    if not lists:
        raise Broken("there is no list of mutants")
    for path in lists:
        for entry in tomllib.loads(path.read_text()).get("mutant", []):
            if set(entry) != FIELDS:
                raise Broken(f"{path}: {entry.get('name', 'a mutant')} has the fields {sorted(entry)}, want {sorted(FIELDS)}")
            m = Mutant(**entry)
            if m.name in mutants:
                raise Broken(f"{path}: {m.name} is there twice")
            if not m.harm.strip() or m.old == m.new:
                raise Broken(f"{path}: {m.name} does no harm")
            try:
                m.apply(root)
            except Broken as e:
                stale.append(str(e))
            mutants[m.name] = m
    if stale:
        raise Broken("the lists do not fit the code:\n" + "\n".join(stale))
    return list(mutants.values())


@dataclasses.dataclass
class Outcome:
    """The end of one run of a package's tests."""

    failed: str = ""  # the test that failed first, or what else went wrong
    hung: bool = False
    output: str = ""


class Packages:
    """The packages of a module, who imports whom, and their tests."""

    def __init__(self, root: pathlib.Path, work: pathlib.Path, flags: "list[str]", limit: float) -> None:
        self.root, self.work, self.flags, self.limit = root, work, flags, limit
        os.chmod(work, 0o755)
        self.folder: "dict[str, pathlib.Path]" = {}
        self.tested: "set[str]" = set()
        self.importers: "dict[str, set[str]]" = collections.defaultdict(set)
        self.testers: "dict[str, set[str]]" = collections.defaultdict(set)  # packages whose tests import it
        self.baselines: "dict[str, concurrent.futures.Future[Outcome]]" = {}
        # Shared memory of their own for all tests, so that nothing is left of those that crash or are cut off.
        self.alone = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs mutate /dev/shm && exec "$@"', "sh"]
        if not shutil.which("unshare") or subprocess.run([*self.alone, "true"], stderr=subprocess.DEVNULL).returncode:
            self.alone = []
        self.controls: "dict[tuple[str, str], Outcome]" = {}
        self.lock = threading.Lock()
        listed = subprocess.run(["go", "list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles",
                                 *[f for f in flags if f != "-race"], "./..."], cwd=root, stdout=subprocess.PIPE,
                                 text=True, check=True).stdout
        decoder, at = json.JSONDecoder(), 0
        while at < len(listed.rstrip()):
            p, end = decoder.raw_decode(listed[at:])
            at += end + 1
            self.folder[p["ImportPath"]] = pathlib.Path(p["Dir"])
            if p.get("TestGoFiles") or p.get("XTestGoFiles"):
                self.tested.add(p["ImportPath"])
            for other in p.get("Imports") or []:
                self.importers[other].add(p["ImportPath"])
            for other in (p.get("TestImports") or []) + (p.get("XTestImports") or []):
                self.testers[other].add(p["ImportPath"])

    def of(self, file: str) -> str:
        for path, folder in self.folder.items():
            if folder == (self.root / file).parent.resolve():
                return path
        raise Broken(f"{file} is in no package")

    def around(self, package: str) -> "list[str]":
        """Returns the packages with tests that reach package, the nearest first."""
        reached, order = {package}, [package]
        ring = [package]
        while ring:
            near = sorted({p for q in ring for p in self.importers[q]} - reached)
            order += near + sorted({p for q in ring for p in self.testers[q]})  # these lead nowhere else
            reached.update(near)
            ring = near
        return [p for p in dict.fromkeys(order) if p in self.tested]

    def short(self, package: str) -> str:
        return str(self.folder[package].relative_to(self.root))

    def build(self, package: str, to: pathlib.Path, overlay: "list[str]") -> str:
        """Builds the test program of package; returns the compiler's output if it fails."""
        done = subprocess.run(["go", "test", "-c", "-vet=off", "-ldflags=-w", "-o", str(to), *self.flags, *overlay,
                               package],
                              cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout or "the compiler failed" if done.returncode else ""

    def run(self, package: str, program: pathlib.Path, overlay: "list[str]", *arguments: str,
            first: bool = False) -> Outcome:
        """Runs a test program, up to the first failure if first; what it starts and leaves behind ends with it."""
        temporary = tempfile.mkdtemp(dir=self.work)
        os.chmod(temporary, 0o755)  # as /tmp is: some tests need a process of another user there
        # Programs that a test builds have the bug, too.
        env = {**os.environ, "TMPDIR": temporary, "GOFLAGS": " ".join([os.environ.get("GOFLAGS", ""),
            *overlay]).strip()}
        with open(os.path.join(temporary, "output"), "w+", errors="replace") as out:
            proc = subprocess.Popen([*self.alone, str(program), "-test.v", f"-test.timeout={self.limit:.0f}s",
                                     *arguments], cwd=self.folder[package],
                                    stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env,
                                    start_new_session=True)
            deadline, hung = time.monotonic() + self.limit + 30, False
            try:
                while proc.poll() is None and not (first and has_failed(out.name)):
                    if time.monotonic() > deadline:
                        hung = True  # it could not even print its stacks
                        break
                    time.sleep(0.2)
            finally:
                try:
                    os.killpg(proc.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                status = proc.wait()
            out.seek(0)
            text = out.read()
        shutil.rmtree(temporary, ignore_errors=True)
        if not self.alone:
            remove_segments(proc.pid)
        return judge(status, hung, text)

    def baseline(self, package: str) -> Outcome:
        """Returns how the tests of package end without a bug. They run once."""
        with self.lock:
            future = self.baselines.get(package)
            first = future is None
            if future is None:
                future = self.baselines[package] = concurrent.futures.Future()
        if first:
            try:
                problem = self.build(package, self.program(package), [])
                future.set_result(Outcome("(does not compile)", output=problem) if problem
                                  else self.run(package, self.program(package), []))
            except BaseException as e:
                future.set_exception(e)
                raise
        return future.result()

    def control(self, package: str, test: str) -> Outcome:
        """Returns how one test ends without a bug."""
        if (package, test) not in self.controls:
            self.controls[package, test] = self.run(package, self.program(package), [], f"-test.run=^{test}$")
        return self.controls[package, test]

    def program(self, package: str) -> pathlib.Path:
        """Returns the test program without a bug."""
        return self.work / (package.replace("/", "-") + ".test")


def has_failed(output: str) -> bool:
    """Reports whether a test that runs has failed. What fails in the end is reported by its subtests first."""
    with open(output, errors="replace") as f:
        return re.search(r"^ *--- FAIL: ", f.read(), re.M) is not None


def judge(status: int, hung: bool, text: str) -> Outcome:
    if hung or "panic: test timed out after" in text:
        running = re.findall(r"^\t(Test\S+|Fuzz\S+|Example\S+) \(", text.partition("running tests:")[2],
                             re.M) or started(text)
        return Outcome(running[-1] if running else "(no test)", True, text)
    if status == 0:
        return Outcome(output=text)
    failed = re.findall(r"^ *--- FAIL: (\S+)", text, re.M)
    if failed:
        # A subtest is reported before or after the test that it belongs to.
        return Outcome(next((f for f in failed if f.startswith(failed[0] + "/")), failed[0]), False, text)
    running = started(text)
    return Outcome(running[-1] if running else "(the test program)", False, text)


def started(text: str) -> "list[str]":
    """Returns the tests that began and did not end, if a program died."""
    ended = set(re.findall(r"^ *--- (?:PASS|SKIP): (\S+)", text, re.M))
    return [t for t in re.findall(r"^=== (?:RUN|CONT) +(\S+)", text, re.M) if t not in ended]


def remove_segments(pid: int) -> None:
    """Removes what a test program that died left in /dev/shm, where the name contains its id."""
    try:
        names = os.listdir("/dev/shm")
    except OSError:
        return
    for name in names:
        if "ringcache" in name and re.search(rf"(^|\D){pid}(\D|$)", name):
            path = os.path.join("/dev/shm", name)
            shutil.rmtree(path, ignore_errors=True)
            if os.path.lexists(path):
                os.unlink(path)


@dataclasses.dataclass
class Verdict:
    mutant: Mutant
    word: str  # killed, survived or broken
    text: str
    seconds: float


def examine(m: Mutant, packages: Packages, own: bool) -> Verdict:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=packages.work) as folder:
        word, text = hunt(m, packages, pathlib.Path(folder), own)
    return Verdict(m, word, text, time.monotonic() - began)


def hunt(m: Mutant, packages: Packages, work: pathlib.Path, own: bool) -> "tuple[str, str]":
    (work / "mutant.go").write_text(m.apply(packages.root))
    (work / "overlay.json").write_text(json.dumps({"Replace": {str(packages.root / m.file): str(work / "mutant.go")}}))
    overlay = [f"-overlay={work / 'overlay.json'}"]
    around = packages.around(packages.of(m.file))[: 1 if own else None]
    for package in around:
        before = packages.baseline(package)
        if before.failed:
            return "broken", f"{packages.short(package)}/{before.failed} fails without it\n{tail(before.output)}"
        program = work / "mutant.test"
        problem = packages.build(package, program, overlay)
        if problem:
            return "broken", f"does not compile\n{tail(problem)}"
        after = packages.run(package, program, overlay, "-test.failfast", first=True)
        if not after.failed:
            continue
        test = after.failed.split("/")[0]
        if not test.startswith("("):
            again = packages.control(package, test)
            if again.failed:
                return "broken", f"{packages.short(package)}/{test} fails now and then without it\n{tail(again.output)}"
        by = f"{packages.short(package)}/{after.failed}"
        return "killed", f"by the time limit, in {by}" if after.hung else f"by {by}"
    return "survived", f"the tests of {', '.join(packages.short(p) for p in around)}"


def tail(text: str) -> str:
    return "\n".join("    " + s for s in text.splitlines()[-30:])


def check_baselines(mutants: "list[Mutant]", packages: Packages, pool: concurrent.futures.Executor) -> None:
    touched = list(dict.fromkeys(packages.of(m.file) for m in mutants))
    for package, outcome in zip(touched, pool.map(packages.baseline, touched)):
        if outcome.failed:
            raise Broken(f"without a bug, {packages.short(package)}/{outcome.failed} {'does not end' if outcome.hung else 'fails'}\n{tail(outcome.output)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="examine this one, and no other; may be repeated, may end in *")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1,
                        help="how many at a time (default: one for each processor)")
    parser.add_argument("--race", action="store_true", help="with the race detector")
    parser.add_argument("--tags", default="failpoints,invariants", help="build tags (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=5, metavar="MINUTES",
                        help="for the tests of a package (default: %(default)s)")
    parser.add_argument("--lists", type=pathlib.Path, metavar="FOLDER",
                        help="where the lists are (default: scripts/mutations)")
    parser.add_argument("--own", action="store_true", help="run only the tests of the package itself, for a quick look")
    parser.add_argument("--check", action="store_true", help="only show that the lists fit the code")
    options = parser.parse_args()
    root = pathlib.Path.cwd()
    lists = sorted((options.lists or pathlib.Path(__file__).resolve().parent / "mutations").glob("*.toml"))
    try:
        mutants = load(lists, root)
        if options.check:
            print(f"{len(mutants)} mutants, all apply")
            return 0
        if options.only:
            wanted = re.compile("|".join(re.escape(n).replace(r"\*", ".*") for n in options.only))
            mutants = [m for m in mutants if wanted.fullmatch(m.name)]
        if not mutants:
            raise Broken("no mutant has that name")
        with tempfile.TemporaryDirectory(prefix="mutate-") as work:
            return examine_all(mutants, root, pathlib.Path(work), options)
    except Broken as e:
        print(f"mutate: {e}", file=sys.stderr)
        return 1


def examine_all(mutants: "list[Mutant]", root: pathlib.Path, work: pathlib.Path, options: argparse.Namespace) -> int:
    flags = [f"-tags={options.tags}"] + (["-race"] if options.race else [])
    packages = Packages(root, work, flags, options.limit * 60)
    began, count = time.monotonic(), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        check_baselines(mutants, packages, pool)
        print(f"{len(packages.baselines)} packages pass without a bug, {time.monotonic() - began:.0f} s", flush=True)
        for done in concurrent.futures.as_completed([pool.submit(examine, m, packages, options.own) for m in mutants]):
            v = done.result()
            count[v.word] += 1
            print(f"{v.mutant.name}: {v.word} {v.text}, {v.seconds:.1f} s", flush=True)
            if v.word == "survived":
                print(f"    what it does: {v.mutant.harm}", flush=True)
    broken = f", {count['broken']} broken" if count["broken"] else ""
    print(f"{len(mutants)} mutants, {count['killed']} killed, {count['survived']} survived{broken}; {time.monotonic() - began:.0f} s")
    return 0 if count["killed"] == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
