"""The real vLLM's EncoderCacheManager, driven step by step. Imported in worker processes, where a release is loaded."""

import types


class Request:
    def __init__(self, name, inputs):
        self.request_id, self.inputs = name, inputs
        self.mm_features = [types.SimpleNamespace(identifier=identifier) for identifier, _ in inputs]

    def get_num_encoder_embeds(self, number):
        return self.inputs[number][1]

    get_num_encoder_tokens = get_num_encoder_embeds  # to 0.12


class Manager:
    def __init__(self, capacity):
        from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
        self._manager, self._requests = EncoderCacheManager(capacity), {}
        self.about = {"reset": hasattr(self._manager, "reset"),
                      "embeds": hasattr(self._manager, "get_cached_num_encoder_embeds")}

    def run(self, requests, steps):
        for name, inputs in requests.items():
            self._requests[name] = Request(name, inputs)
        return [[getattr(self, verb)(*arguments), self._state()] for verb, *arguments in steps]

    def _state(self):
        m = self._manager
        return [m.num_free_slots, m.num_freeable_slots, {h: sorted(r) for h, r in m.cached.items()},
                [list(f) for f in m.freeable.items()]]

    # What a scheduler does for one input.
    def sched(self, name, number, budget, scheduled):
        if self.check(name, number):
            return "hit"
        if not self.can(name, number, budget, scheduled):
            return "no"
        self._manager.allocate(self._requests[name], number)
        return "alloc"

    def check(self, name, number):
        return self._manager.check_and_update_cache(self._requests[name], number)

    def can(self, name, number, budget, scheduled):
        return self._manager.can_allocate(self._requests[name], number, budget, scheduled)

    def allocate(self, name, number):
        """The name of the error, or None."""
        try:
            self._manager.allocate(self._requests[name], number)
        except AssertionError as e:
            return type(e).__name__
        return None

    def inputs(self, name):
        return list(self._manager.get_cached_input_ids(self._requests[name]))

    def free_input(self, name, number):
        self._manager.free_encoder_input(self._requests[name], number)

    def free(self, name):
        self._manager.free(self._requests[name])

    def freed(self):
        return self._manager.get_freed_mm_hashes()

    def embeds(self, identifier):
        return self._manager.num_embeds_by_hash.get(identifier)

    def reset(self):
        self._manager.reset()
