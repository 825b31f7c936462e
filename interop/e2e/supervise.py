"""Runs vLLM below a small process that ends all of it, however it goes wrong, and removes what it leaves behind.

Real vLLM is a family of processes, some of which outlive a parent that is killed, and its native code keeps segments
in /dev/shm that no other program knows. Only the standard library is used here and nothing heavy is imported, so that the
supervisor costs no memory to speak of.
"""

import ctypes
import fcntl
import multiprocessing.util
import os
import pathlib
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
NUDGE = signal.SIGUSR2
PREFIX, SEGMENT = "ringcache-engine-", "segment-of-"


def prctl(option, value):
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(%d) failed" % option)


def die_with_parent():
    """Lets the kernel kill this process when its parent ends, so that no hang can keep it.

    Every program here calls this in the processes that multiprocessing spawns, too: those import the main program as
    __mp_main__ before anything else. vLLM's own means is a pipe to its workers, made much later and read by a thread.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(work, grace=15, stdin=False, started=lambda pid: None, ended=lambda cpu, rss: None):
    """Calls work in a child process and ends this one with its status (128 + n for signal n).

    SIGTERM, SIGINT, SIGHUP and, if stdin is set, the end of stdin, end the child by SIGTERM, and after grace seconds
    (0: at once) by SIGKILL. started is called with the child's number, ended with the CPU seconds of all descendants
    and the peak memory of the largest in MiB. By then all are gone; if this process is itself killed, they are killed
    with it, and the next run removes what they left.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    sweep()
    # For sockets and other files of vLLM. The lock tells others that someone lives here; children hold it as well.
    folder = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)

    wakeup, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    parent, child = os.getpid(), os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.close(wakeup)
        os.close(write)
        become_child(work, parent, folder)
    started(child)
    family = Family(child)
    family.watch(wakeup, stdin, lambda: note_segments(folder))
    status = family.end(grace)
    remove(folder)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended(usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10)
    sys.exit(status if status >= 0 else 128 - status)


def become_child(work, parent, folder):
    """Calls work and ends the process without the interpreter's own end, which takes seconds after vLLM."""
    status = 1
    try:
        die_with_parent()
        if os.getppid() != parent:
            raise RuntimeError("the supervisor has ended")
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        notice_signals()
        work()
        status = 0
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else int(e.code is not None)
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    # As at the end of the processes that multiprocessing starts, one of which vLLM would have made of this.
    multiprocessing.util._run_finalizers(0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def notice_signals():
    """Lets the main thread run the handler of a signal that came just before it began to wait for a lock.

    Python looks for signals between two instructions, and a signal ends a wait that has begun; one that comes in between
    is noticed after the wait, which an idle engine never ends.
    """
    signals, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(NUDGE, lambda *_: None)
    main = threading.main_thread().ident

    def nudge():
        while number := os.read(signals, 1):
            for _ in range(10 if number[0] != NUDGE else 0):
                time.sleep(0.1)
                signal.pthread_kill(main, NUDGE)

    threading.Thread(target=nudge, name="notice-signals", daemon=True).start()


class Family:
    """A child and its descendants: those that lose their parent become children of this process."""

    def __init__(self, child):
        self._child, self._status = child, None

    def watch(self, wakeup, stdin, meanwhile):
        """Returns when the child has ended or shall end, and calls meanwhile each second until then."""
        poll, ended = select.poll(), os.pidfd_open(self._child)
        for fd in (ended, wakeup, *([0] if stdin else [])):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll(1000)}
            meanwhile()
            if ended in ready or wakeup in ready or 0 in ready and not os.read(0, 4096):
                return

    def end(self, grace):
        """Ends all processes and returns the child's exit status, negative for a signal."""
        if grace > 0:
            kill(self._child, signal.SIGTERM)
        if not self._reap(grace, lambda: self._status is not None):
            if grace > 0:
                print("supervise: not ended after %g s, killing it" % grace, file=sys.stderr)
            kill(self._child, signal.SIGKILL)  # not yet waited for, so the number is still its own
        # The rest dies with its parents. Last is multiprocessing's tracker, which removes the shared memory that
        # it knows of: it must not be killed if it can be helped.
        if not self._reap(5, lambda: False):
            for pid in descendants() - {os.getpid()}:
                kill(pid, signal.SIGKILL)
            self._reap(5, lambda: False)
        return os.waitstatus_to_exitcode(self._status or 0)

    def _reap(self, seconds, enough):
        """Collects ended processes until enough says so or none is left; False if that takes too long."""
        end = time.monotonic() + seconds
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == self._child:
                self._status = status
            if enough():
                return True
            if pid == 0:
                if time.monotonic() >= end:
                    return False
                time.sleep(0.02)


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def descendants():
    """The numbers of this process and all below it."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path("/proc", name, "stat").read_text()
        except OSError:
            continue  # ended meanwhile
        parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    found, last = set(), {os.getpid()}
    while last:
        found |= last
        last = {pid for pid, parent in parents.items() if parent in last} - found
    return found


def note_segments(folder):
    """Remembers the names under which workers share memory: vLLM derives them from a file that it may remove first."""
    for file in folder.glob("vllm_dist_*"):
        (folder / (SEGMENT + file.name)).touch()


def remove(folder):
    """Removes a run's folder and the segments that its workers, killed, did not."""
    note_segments(folder)
    for note in folder.glob(SEGMENT + "*"):
        for segment in pathlib.Path("/dev/shm").glob(note.name.removeprefix(SEGMENT) + "-*"):
            segment.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def sweep():
    """Removes what runs left whose supervisor was killed."""
    for folder in pathlib.Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        try:
            if time.time() - folder.stat().st_ctime < 60:
                continue  # may be so new that its lock is not yet taken
            lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue  # removed meanwhile, or of another user
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(folder)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)

