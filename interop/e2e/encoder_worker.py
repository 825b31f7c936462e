"""What the tests of the encoder cache see of an engine's workers, and what they have happen there: an extension of vLLM's worker.

vLLM calls these methods by name, in the worker's process, whatever executor runs it. They count, since a connector that
never loads anything passes every test of equal tokens.
"""

import contextlib
import os
import signal
import time

import common

FIELDS = "calls", "items", "loads", "saves"


class Observed:
    """Mixed into the worker's class by worker_extension_cls."""

    def observe_encoder(self):
        """Counts from now on: executions of the vision tower, items that it encoded, and the connector's loads and saves."""
        self._observed = dict.fromkeys(FIELDS, 0)
        self._armed = None
        model = self.model_runner.get_model()
        embed = model.embed_multimodal

        def embedded(**kwargs):
            made = embed(**kwargs)
            self._observed["calls"] += 1
            self._observed["items"] += len(made)
            return made

        model.embed_multimodal = embedded
        connector = self.encoder_connector()
        if connector is not None:
            self._observe(connector)
        return os.getpid()

    @staticmethod
    def encoder_connector():
        from vllm.distributed.ec_transfer import get_ec_transfer, has_ec_transfer
        return get_ec_transfer() if has_ec_transfer() else None

    def _observe(self, connector):
        load, save = connector.start_load_caches, connector.save_caches

        def loaded(encoder_cache, **kwargs):
            # The scheduler has pinned what is loaded now.
            self._strike("load")
            before = len(encoder_cache)
            load(encoder_cache, **kwargs)
            self._observed["loads"] += len(encoder_cache) - before

        def saved(encoder_cache, mm_hash, **kwargs):
            self._strike("save")
            save(encoder_cache, mm_hash, **kwargs)
            self._observed["saves"] += 1

        connector.start_load_caches, connector.save_caches = loaded, saved

    def arm_encoder(self, at, pid, until):
        """Kills process pid, if any, when the connector is next called to load, or to save. With until, makes the file UNTIL.reached
        then, and goes on when the file until is there."""
        self._armed = at, pid, until

    def _strike(self, at):
        if self._armed is None or self._armed[0] != at:
            return
        (_, pid, until), self._armed = self._armed, None
        if pid:
            with contextlib.suppress(ProcessLookupError):  # another worker was first
                os.kill(pid, signal.SIGKILL)
            while common.running(pid):
                time.sleep(0.001)
        if until:
            open(until + ".reached", "w").close()
            while not os.path.exists(until):
                time.sleep(0.001)

    def encoder_counts(self):
        """What was counted, and whether an armed kill still waits for its moment."""
        return {**self._observed, "armed": self._armed is not None}
