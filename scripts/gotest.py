#!/usr/bin/env python3
"""Runs `go test -json` with the given arguments and prints what a person wants to know.

That is: a line per package, the output of tests that failed, the counts that the golden tests log, the reason of
every skip, and at the end what failed and how many tests there were. A test that is skipped without a reason fails
the run, and so does a name of a subtest in -run that no test has: Go would run its parent alone. With --logs in front
of the arguments, what tests that pass log is printed, too.
"""

import collections
import json
import re
import subprocess
import sys


def main() -> int:
    logs = sys.argv[1:2] == ["--logs"]
    proc = subprocess.Popen(["go", "test", "-json", *sys.argv[1 + logs:]], stdout=subprocess.PIPE, text=True)
    assert proc.stdout is not None
    output = collections.defaultdict(list)
    count = collections.Counter()
    golden: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    running: dict[str, set[str]] = collections.defaultdict(set)
    names: set[str] = set()
    failures: dict[str, list[str]] = collections.defaultdict(list)
    failed_packages = unexplained = 0
    for line in proc.stdout:
        try:
            event = json.loads(line)
        except ValueError:
            print(line, end="")  # the go command itself has something to say
            continue
        action, package, test = event["Action"], event.get("Package", ""), event.get("Test")
        key = (package, test)
        if action == "output":
            output[key].append(event["Output"])
        elif action == "build-output":
            print(event["Output"], end="")
        elif action == "run":
            running[package].add(test)
            names.add(test)
        elif action in ("pass", "fail", "skip"):
            text = output.pop(key, [])
            if test is None:
                if action == "fail":
                    failed_packages += 1
                    # What crashed or hung has no end of its own, so its output is still here.
                    for other in [k for k in output if k[0] == package]:
                        text = output.pop(other) + text
                    for unfinished in sorted(running.pop(package, ())):
                        count["fail"] += 1
                        failures[package].append(unfinished + " (did not end)")
                    if not failures[package]:
                        failures[package].append("(the package itself, see above)")
                report_package(action, text)
                continue
            running[package].discard(test)
            count[action] += 1
            if action == "fail":
                failures[package].append(test)
                print("".join(text), end="")
            elif action == "skip":
                reason = [s.strip() for s in text if not s.startswith(("=== ", "--- ", "    --- "))]
                print("SKIP", package, test, *(reason or ["(no reason given)"]))
                unexplained += not reason
            elif logs:
                for s in text:
                    if "_test.go:" in s:
                        print(f"{test}: {s.strip().split(': ', 1)[1]}", flush=True)
            elif "Golden" in test:
                golden[test.split("/")[0]].update(s.strip().split(": ", 1)[1] for s in text if "_test.go:" in s)
    status = proc.wait()
    for test, lines in golden.items():
        print(f"golden: {test}")
        for s, n in lines.items():
            print(f"    {s}" + (f"  (the same for {n} releases)" if n > 1 else ""))
    for package, tests in sorted(failures.items()):
        for test in tests:
            print("FAILED", package, test)
    if unexplained:
        print(f"{unexplained} tests were skipped without a reason")
    missing = unmatched(sys.argv, names)
    for pattern in missing:
        print(f"no test is named {pattern}")
    if not count["pass"]:
        print("no test passed")
    packages = f" in {failed_packages} packages" if failed_packages else ""
    print(f"{count['pass']} passed, {count['fail']} failed{packages}, {count['skip']} skipped")
    return 1 if status or unexplained or failed_packages or missing or not count["pass"] else 0


def unmatched(arguments: list[str], names: set[str]) -> list[str]:
    """The alternatives of -run that name a subtest, and none that ran."""
    if "-run" not in arguments[:-1]:
        return []
    pattern = arguments[arguments.index("-run") + 1]
    missing = []
    for alternative in split(pattern, "|"):
        parts = split(alternative, "/")
        if len(parts) > 1 and not any(matches(parts, name.split("/")) for name in names):
            missing.append(alternative)
    return missing


def matches(parts: list[str], name: list[str]) -> bool:
    return len(name) >= len(parts) and all(re.search(p, n) for p, n in zip(parts, name))


def split(pattern: str, separator: str) -> list[str]:
    """Splits a pattern where the separator is in no brackets, as Go does."""
    parts, depth = [""], 0
    for c in pattern:
        depth += (c in "([") - (c in ")]")
        if c == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def report_package(action: str, text: list[str]) -> None:
    for s in text:
        if action == "fail" or s.startswith("ok"):
            print(s, end="")


if __name__ == "__main__":
    sys.exit(main())
