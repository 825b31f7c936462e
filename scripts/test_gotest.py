#!/usr/bin/env python3
"""What gotest.py says of packages that fail in every way, and its status."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PACKAGES = {
    "crash": 'import ("os"; "testing")\nfunc TestBefore(*testing.T) {}\nfunc TestCrash(*testing.T) { println("dying"); os.Exit(3) }',
    "fail": 'import "testing"\nfunc TestFail(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("no good") }) }',
    "leak": 'import ("os"; "testing")\nfunc TestLeak(*testing.T) {}\nfunc TestMain(m *testing.M) { m.Run(); println("left"); os.Exit(1) }',
    "broken": 'import "testing"\nfunc TestBroken(*testing.T) { undefined() }',
    "good": 'import "testing"\nfunc TestGolden(t *testing.T) { t.Log("3 vectors") }\nfunc TestSkip(t *testing.T) { t.Skip("why") }',
    "mute": 'import "testing"\nfunc TestMute(t *testing.T) { t.SkipNow() }\nfunc TestLoud(*testing.T) {}',
}


class GoTest(unittest.TestCase):
    def run_on(self, *names: str, run: str = "") -> "tuple[int, str]":
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "go.mod").write_text("module m\ngo 1.26\n")
            for name in names:
                (root / name).mkdir()
                (root / name / "a_test.go").write_text("package %s\n%s\n" % (name, PACKAGES[name]))
            script = pathlib.Path(__file__).resolve().with_name("gotest.py")
            done = subprocess.run([sys.executable, script, *(["-run", run] if run else []), "./..."], cwd=root, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT,
                                  text=True, env={**os.environ, "GOFLAGS": "", "GOWORK": "off"})
            return done.returncode, done.stdout

    def test_what_passes(self) -> None:
        status, text = self.run_on("good")
        self.assertEqual(status, 0, text)
        self.assertIn("SKIP m/good TestSkip a_test.go:4: why\n", text)
        self.assertIn("golden: TestGolden\n    3 vectors\n1 passed, 0 failed, 1 skipped\n", text)

    def test_every_failure_is_named(self) -> None:
        status, text = self.run_on("broken", "crash", "fail", "good", "leak")
        self.assertEqual(status, 1, text)
        for words in "undefined: undefined", "dying", "no good", "left":
            self.assertIn(words, text)
        self.assertTrue(text.endswith(
            "FAILED m/broken (the package itself, see above)\n"
            "FAILED m/crash TestCrash (did not end)\n"
            "FAILED m/fail TestFail/sub\n"
            "FAILED m/fail TestFail\n"
            "FAILED m/leak (the package itself, see above)\n"
            "3 passed, 3 failed in 4 packages, 1 skipped\n"), text)

    def test_a_subtest_that_no_test_has_fails(self) -> None:
        status, text = self.run_on("fail", "good", run="TestGolden|TestFail/(no|sub)")
        self.assertNotIn("no test is named", text)
        status, text = self.run_on("good", run="TestGolden|TestGolden/(x|y)")
        self.assertEqual(status, 1, text)
        self.assertIn("no test is named TestGolden/(x|y)\n", text)

    def test_a_skip_without_a_reason_fails(self) -> None:
        status, text = self.run_on("mute")
        self.assertEqual(status, 1, text)
        self.assertIn("1 tests were skipped without a reason\n", text)


if __name__ == "__main__":
    unittest.main()
