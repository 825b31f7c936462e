"""Views that a program forgets to release."""

from __future__ import annotations

import gc
import os
import pathlib
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import build
import numpy as np
import pytest
from conftest import MakeSegment, make_sidecar

from ringcache import Reader, SegmentBusyError, View, sign
from ringcache.sidecar import MAX_HOLDS

SRC = pathlib.Path(__file__).resolve().parents[1] / "src"
PIXELS = bytes(range(256)) * 4
SIZE = 4096


def ring() -> bytes:
    parts = build.frames({"x": build.elem([build.u8(1024, 1), build.u8(0, 2)])}, PIXELS, b"")
    return build.segment(SIZE, {0: build.chunk(5, build.body(build.ITEM, parts))})


def get(reader: Reader) -> View:
    return reader.get(0, 5, "k", list(sign(reader.secret(), "k", 0, 5)))


def pixels(view: View) -> Any:
    data = view.item["x"].data
    assert isinstance(data, list)
    return data[0]


@contextmanager
def no_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        gc.collect()


@contextmanager
def forgotten() -> Iterator[None]:
    """Expects one warning, with this file and a line in it."""
    with pytest.warns(ResourceWarning, match=r"test_dropped\.py:\d+") as caught:
        yield
        gc.collect()
    assert len(caught) == 1


def test_dropped_views_do_not_disable_a_reader(make_segment: MakeSegment) -> None:
    """Each took one of the places of the reader's slot for good."""
    name = make_segment(ring())
    make_sidecar(name, SIZE)
    with Reader(name, SIZE) as reader:
        assert reader.protected
        for _ in range(MAX_HOLDS + 100):
            with forgotten():
                reader.get(0, 5)


def test_line_that_got_a_view(make_segment: MakeSegment) -> None:
    frame = sys._getframe()
    with Reader(make_segment(ring()), SIZE) as reader:
        view = (
            reader.get(0, 5)  # this line
        )
        line = frame.f_lineno - 2
        assert view._keeper.use.where == f"{__file__}:{line}"
        view.release()


def test_dropped_view_counts_its_use(make_segment: MakeSegment) -> None:
    """At the reader's next call, or its end. Else the chunk would stay for ever."""
    name = make_segment(ring())
    lock = threading.Lock()
    with Reader(name, SIZE, lock=lock) as reader:
        with forgotten(), lock:  # the lock is taken where the view ends
            get(reader)
        assert reader.reader_count(0, 5) == 0
        with get(reader):
            assert reader.reader_count(0, 5) == 1
        assert reader.reader_count(0, 5) == 2
        with forgotten():
            get(reader)
    with Reader(name, SIZE) as reader:
        assert reader.reader_count(0, 5) == 3


def test_dropped_stale_view_counts_nothing(make_segment: MakeSegment) -> None:
    name = make_segment(ring())
    with Reader(name, SIZE, lock=threading.Lock()) as reader:
        with forgotten():
            get(reader)
        with open(f"/dev/shm/{name}", "r+b") as f:
            f.seek(32)
            f.write((6).to_bytes(4, "little"))
    assert pathlib.Path("/dev/shm", name).read_bytes()[40:44] == bytes(4)


@pytest.mark.parametrize(
    "keep",
    [
        lambda view: view.item,
        lambda view: view.item["x"],
        lambda view: pixels(view),
        lambda view: pixels(view).data,
        lambda view: pixels(view).data[5:9].cast("c"),
        lambda view: pixels(view).numpy(),
        lambda view: pixels(view).numpy()[3:50:7].view(np.int8),
        lambda view: memoryview(pixels(view).numpy()),
        lambda view: np.asarray(memoryview(pixels(view).numpy())).reshape(2, -1),
    ],
)
def test_view_is_kept_by_what_was_taken_from_it(
    make_segment: MakeSegment, keep: Callable[[View], Any]
) -> None:
    """Its chunk must not be free while an array of it is alive."""
    pool, plain = make_segment(ring()), make_segment(ring())
    make_sidecar(pool, SIZE)
    lock = threading.Lock()
    with Reader(pool, SIZE, lock=lock) as held, Reader(plain, SIZE, lock=lock) as counting:
        assert held.protected and not counting.protected
        for reader in (held, counting):
            with no_warning():
                kept = keep(get(reader))
                gc.collect()
            with pytest.raises(SegmentBusyError, match=r"not released.*test_dropped\.py:\d+"):
                reader.close()
            with forgotten():
                del kept
        assert (held.reader_count(0, 5), counting.reader_count(0, 5)) == (1, 0)
        for reader in (held, counting):
            reader.touch(0, 5, "k", list(sign(reader.secret(), "k", 0, 5)))
            assert reader.reader_count(0, 5) == 1


def test_released_views_are_not_reported(make_segment: MakeSegment) -> None:
    with Reader(make_segment(ring()), SIZE, lock=threading.Lock()) as reader, no_warning():
        get(reader).release()
        with get(reader) as view:
            array = pixels(view).numpy()
        del view
        gc.collect()
        assert array[7] == 7
        del array


def test_dropped_in_a_forked_child(make_segment: MakeSegment) -> None:
    """The child's copy is not a use of its own: it would be counted twice."""
    name = make_segment(ring())
    reader = Reader(name, SIZE, lock=threading.Lock())
    view = get(reader)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with no_warning():
                del view
                gc.collect()
                reader.touch(0, 5, "k", list(sign(reader.secret(), "k", 0, 5)))
                code = reader.reader_count(0, 5)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    view.release()
    assert reader.reader_count(0, 5) == 1
    reader.close()


def test_threads_that_get_release_and_drop(make_segment: MakeSegment) -> None:
    name = make_segment(ring())
    threads, rounds = 4, 200

    def use() -> None:
        for i in range(rounds):
            view = get(reader)
            if i % 3:
                view.release()
            del view

    with Reader(name, SIZE, lock=threading.Lock()) as reader:
        with pytest.warns(ResourceWarning):
            running = [threading.Thread(target=use) for _ in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            gc.collect()
    with Reader(name, SIZE) as reader:
        assert reader.reader_count(0, 5) == threads * rounds


SHUTDOWN = """
import sys
from ringcache import Reader
reader = Reader(sys.argv[1], int(sys.argv[2]))
view = reader.get(0, 5)
array = view.item["x"].data[0].numpy()
class Late:
    def __del__(self, view=view): view
late = [Late()]
late.append(late)
print(array[3])
"""


def test_end_of_the_interpreter_with_views(make_segment: MakeSegment) -> None:
    """No traceback, and no wait: the kernel frees the slot."""
    name = make_segment(ring())
    make_sidecar(name, SIZE)
    done = subprocess.run(
        [sys.executable, "-c", SHUTDOWN, name, str(SIZE)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
    with Reader(name, SIZE) as reader:
        assert reader.protected
