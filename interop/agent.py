"""A client of `ringcache agent`: JSON lines to its stdin, JSON lines from its stdout, in the same order."""

import collections
import json
import os
import queue
import subprocess
import tempfile
import threading


class AgentError(Exception):
    """The agent said no. kind is stable; upstream is vLLM's own text for the same failure, or None."""

    def __init__(self, op, error):
        self.kind, self.text, self.upstream = error.get("kind"), error.get("text"), error.get("upstream")
        super().__init__("%s: %s: %s" % (op, self.kind, self.text))


class AgentGone(Exception):
    """The agent ended, or did not answer in time."""


class Agent:
    """One agent process. `call` asks and waits; `send` and `receive` pipeline: replies come in the order of sending."""

    def __init__(self, path=None, timeout=120):
        self.timeout = timeout
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen([path or os.environ["RINGCACHE_AGENT"], "agent"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=self._log)
        self._replies, self._sent = queue.SimpleQueue(), collections.deque()
        # A thread drains stdout, or else both processes could wait for the other to read.
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self):
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put(None)

    def send(self, op, **fields):
        fields["op"] = op
        self.raw(json.dumps(fields).encode(), op)

    def raw(self, line, op="raw"):
        try:
            self._process.stdin.write(line + b"\n")
        except OSError:
            pass  # the missing reply tells, with the agent's own words
        self._sent.append(op)

    def receive(self):
        """The reply to the oldest request that has none yet. Raises AgentError when it is a failure."""
        op = self._sent.popleft()
        try:
            self._process.stdin.flush()
        except OSError:
            pass
        try:
            line = self._replies.get(timeout=self.timeout)
        except queue.Empty:
            raise AgentGone("no reply to %s within %g s\n%s" % (op, self.timeout, self.log())) from None
        if line is None:
            self._process.wait(180)
            raise AgentGone("ended with status %s at %s\n%s" % (self._process.returncode, op, self.log()))
        reply = json.loads(line)
        if not reply["ok"]:
            raise AgentError(op, reply["error"])
        return reply

    def flush(self):
        try:
            self._process.stdin.flush()
        except OSError:
            pass

    def call(self, op, **fields):
        assert not self._sent, "replies of pipelined requests are outstanding"
        self.send(op, **fields)
        return self.receive()

    def error(self, op, **fields):
        """The AgentError that the request must end in, or None if it succeeds."""
        try:
            self.call(op, **fields)
        except AgentError as e:
            return e
        return None

    def drain(self):
        """Throws away what is outstanding, so that a test that failed in the middle leaves a usable agent."""
        while self._sent:
            try:
                self.receive()
            except AgentError:
                pass

    def log(self):
        self._log.seek(0)
        return self._log.read()[-4000:].decode(errors="replace")

    def kill(self):
        """Ends the agent as nothing can prepare for."""
        self._process.kill()
        self._process.wait(180)

    def close(self):
        """Ends the agent as a user would (end of input) and returns its status."""
        try:
            self._process.stdin.close()
        except OSError:
            pass
        try:
            return self._process.wait(180)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(180)
            return None
