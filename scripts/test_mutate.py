#!/usr/bin/env python3
"""What mutate.py reports of a module of its own: bugs that tests notice, that none notices, that never end, and lists that are wrong."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = "package low\n\nfunc Add(a, b int) int { return a + b }\n\nfunc Half(n int) int { return n / 2 }\n\nfunc More() bool { return false }\n"
TEST = 'package low\n\nimport "testing"\n\nfunc TestAdd(t *testing.T) {\n\tt.Run("small", func(t *testing.T) { if Add(1, 2) != 3 { t.Fail() } })\n}\n\nfunc TestMore(*testing.T) { for More() {} }\n'
USER = "package high\n\nimport \"m/low\"\n\nfunc Quarter(n int) int { return low.Half(low.Half(n)) }\n"
USER_TEST = 'package high\n\nimport "testing"\n\nfunc TestQuarter(t *testing.T) { if Quarter(8) != 2 { t.Fail() } }\n'
FLAKY = 'package low\n\nimport ("os"; "testing")\n\nfunc TestFlaky(t *testing.T) {\n\tif _, err := os.Stat("ran"); err == nil { t.Fail() }\n\tos.WriteFile("ran", nil, 0o600)\n}\n'
OPEN = 'package low\n\nimport ("os"; "path/filepath"; "testing")\n\nfunc TestOpen(t *testing.T) {\n\tfor _, d := range []string{os.TempDir(), filepath.Dir(os.TempDir())} {\n\t\tif i, err := os.Stat(d); err != nil || i.Mode()&1 == 0 { t.Fatal(d, err) }\n\t}\n}\n'

ADD = ("add", "a + b", "a - b")
HALF = ("half", "n / 2", "n / 3")
HANGS = ("hangs", "return false", "return true")
SURVIVES = ("survives", "func More", "var _ = 1\n\nfunc More")


class Mutate(unittest.TestCase):
    def run_on(self, *mutants: "tuple[str, str, str]", more: "dict[str, str]" = {},
               arguments: "tuple[str, ...]" = ()) -> "tuple[int, str]":
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            files = {"go.mod": "module m\ngo 1.26\n", "low/low.go": SOURCE, "low/low_test.go": TEST,
                     "high/high.go": USER, "high/high_test.go": USER_TEST, **more}
            files["lists/all.toml"] = "".join(f"[[mutant]]\nname = '{name}'\nfile = 'low/low.go'\nold = '''{old}'''\nnew = '''{new}'''\nharm = 'wrong sums'\n"
                                              for name, old, new in mutants)
            for name, text in files.items():
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text(text)
            script = pathlib.Path(__file__).resolve().with_name("mutate.py")
            done = subprocess.run([sys.executable, script, "--lists", root / "lists", *arguments], cwd=root,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, env={**os.environ, "GOFLAGS": "", "GOWORK": "off"})
            self.assertEqual((root / "low/low.go").read_text(), SOURCE, "the working tree changed")
            return done.returncode, done.stdout

    def test_who_kills(self) -> None:
        status, text = self.run_on(ADD, HALF)
        self.assertEqual(status, 0, text)
        self.assertIn("add: killed by low/TestAdd/small, ", text)
        self.assertIn("half: killed by high/TestQuarter, ", text)  # low's own tests don't notice
        self.assertIn("2 mutants, 2 killed, 0 survived; ", text)

    def test_temporary_folders_are_open_to_other_users(self) -> None:
        status, text = self.run_on(ADD, more={"low/open_test.go": OPEN})
        self.assertEqual(status, 0, text)

    def test_a_survivor_fails_the_run(self) -> None:
        status, text = self.run_on(ADD, SURVIVES)
        self.assertEqual(status, 1, text)
        self.assertIn("survives: survived the tests of low, high, ", text)
        self.assertIn("2 mutants, 1 killed, 1 survived; ", text)

    def test_what_never_ends_is_killed_by_the_limit(self) -> None:
        status, text = self.run_on(HANGS, arguments=("--limit", "0.05"))
        self.assertEqual(status, 0, text)
        self.assertIn("hangs: killed by the time limit, in low/TestMore, ", text)

    def test_what_does_not_compile_is_no_mutant(self) -> None:
        status, text = self.run_on(("nonsense", "a + b", "a +"))
        self.assertEqual(status, 1, text)
        self.assertIn("nonsense: broken does not compile\n", text)
        self.assertIn("1 mutants, 0 killed, 0 survived, 1 broken; ", text)

    def test_a_text_must_be_there_once(self) -> None:
        for old, count in ("a * b", 0), ("return", 3):
            status, text = self.run_on(("stale", old, "x"), arguments=("--check",))
            self.assertEqual(status, 1, text)
            self.assertIn(f"stale: its text is {count} times in low/low.go, not once\n", text)

    def test_tests_that_fail_without_a_bug_kill_nothing(self) -> None:
        status, text = self.run_on(ADD, more={"low/bad_test.go": 'package low\n\nimport "testing"\n\nfunc TestBad(t *testing.T) { t.Fail() }\n'})
        self.assertEqual(status, 1, text)
        self.assertIn("without a bug, low/TestBad fails\n", text)
        status, text = self.run_on(HALF, more={"low/flaky_test.go": FLAKY})
        self.assertEqual(status, 1, text)
        self.assertIn("half: broken low/TestFlaky fails now and then without it\n", text)


if __name__ == "__main__":
    unittest.main()
