"""The plugin in a process with vLLM, beside vLLM's own reader. Skipped without it."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vllm is not installed"
)

HERE = pathlib.Path(__file__).resolve().parent
INSTALLED = ""
OLDER = "0.31.0"  # that the environment of interop/setup.sh has beside the installed one


@pytest.fixture(scope="module", params=[INSTALLED, OLDER], ids=["installed", OLDER])
def results(request: pytest.FixtureRequest, fake_libraries: list[pathlib.Path]) -> dict[str, str]:
    """How the cases of pluginproc.py ended, by their names."""
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    if request.param != INSTALLED:
        release = pathlib.Path(sys.prefix, "releases", request.param)
        if not release.exists():
            pytest.skip(f"vLLM {request.param} is not beside {sys.prefix}")
        environment["PYTHONPATH"] = str(release)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(HERE / "pluginproc.py"), str(fake_libraries[0])],
        capture_output=True,
        text=True,
        timeout=1800,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert request.param in (INSTALLED, report["version"])
    assert "ResourceWarning" not in done.stderr, done.stderr
    found: dict[str, str] = report["cases"]
    return found


# By name, so that a case that went missing is noticed.
CASES = """
off_without_the_variable another_value_is_refused another_release_is_refused another_shape_is_refused
installed_once falls_back_without_a_driver copies_go_to_the_device_of_the_driver_only
falls_back_without_room_for_all_pages late_counts_are_refused_where_touches_count decodes_as_stock
batches_as_stock a_lease_ends_with_the_last_tensor a_lease_ends_after_its_copies
the_writer_goes_on_beside_a_long_request a_spilled_tensor_that_is_viewed_keeps_its_lease
a_slot_without_room_is_made_room_in wrong_handles_fail_as_stock a_reader_that_cannot_attach_leaves_stock
everything_is_given_back
""".split()


@pytest.mark.parametrize("case", CASES)
def test_case(results: dict[str, str], case: str) -> None:
    if results[case].startswith("inapplicable"):
        pytest.skip(results[case])
    assert results[case] == ""


def test_all_cases_are_named(results: dict[str, str]) -> None:
    assert list(results) == CASES
