"""The encoder connector on the base class of each release of vLLM that is installed, and in an
environment without any. Skipped without torch and vLLM's files."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
INSTALLED = "installed"
# Beside the installed one, in the environment of interop/setup.sh. Those before 0.11.2 have no connectors.
OLDER = ("0.11.2", "0.12.0", "0.13.0", "0.16.0", "0.31.0")
needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None or importlib.util.find_spec("torch") is None,
    reason="vllm and torch are not installed",
)


def _cases() -> list[str]:
    """The names in CASES of encoderproc.py, which can't be imported here."""
    for node in ast.parse((HERE / "encoderproc.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "CASES":
            assert isinstance(node.value, ast.List)
            return [case.id for case in node.value.elts if isinstance(case, ast.Name)]
    raise AssertionError("no CASES")


@pytest.fixture(scope="module", params=[INSTALLED, *OLDER])
def results(request: pytest.FixtureRequest) -> dict[str, str]:
    """How the cases ended, by their names."""
    if request.param == INSTALLED:
        found = importlib.util.find_spec("vllm")
        assert found and found.submodule_search_locations
        folder, version = pathlib.Path(found.submodule_search_locations[0]), "0.32.0"
    else:
        version = request.param
        folder = pathlib.Path(sys.prefix, "releases", version, "vllm")
        if not folder.exists():
            pytest.skip(f"vLLM {version} is not beside {sys.prefix}")
    done = subprocess.run(
        [sys.executable, str(HERE / "encoderproc.py"), str(folder), version],
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)])},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert pathlib.Path(report["base"]).is_relative_to(folder), "the base class is the release's"
    cases: dict[str, str] = report["cases"]
    assert list(cases) == _cases()
    return cases


@needs_vllm
@pytest.mark.parametrize("case", _cases())
def test_case(results: dict[str, str], case: str) -> None:
    assert results[case] == ""


def test_without_vllm_and_torch() -> None:
    """Importing the package must not need what only the connector needs."""
    script = """
import sys
sys.modules["vllm"] = sys.modules["torch"] = None
import ringcache, ringcache.daemon, ringcache.vllm
import ringcache.vllm._scheduling, ringcache.vllm._options, ringcache.vllm._stats, ringcache.vllm._blocks
assert callable(ringcache.vllm.register)
try:
    ringcache.vllm.EncoderCacheConnector
except ImportError as e:
    print(e)
try:
    ringcache.vllm.nothing
except AttributeError as e:
    print(e)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parent / "src")},
    )
    assert done.returncode == 0, done.stderr
    assert "torch" in done.stdout
    assert "has no attribute 'nothing'" in done.stdout
