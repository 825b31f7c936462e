"""The arms that use PyTorch. A process of ../README.md's program: one JSON request per line in, one answer per line out.

    peer.py DEVICE      a device of PyTorch: "cuda:0"; "cpu" runs the same steps without a GPU, for tests

First it writes {"versions": {NAME: VERSION}, "error": TEXT}; with an error that is all. Then it answers

    {"op": "open", "path": FILE, "bytes": N, "largest": N}            {"left_out": {ARM: REASON}}
    {"op": "measure", "arm": ARM, "size": N, "offset": N, "stride": N, "batch": N, "rounds": N}
                                                                      {"submit_ns": [...], "total_ns": [...]}
    {"op": "overlap", "arm": ARM, "size": N, "stride": N, "matrix": N, "rounds": N}
                                         {"copies_ns": [...], "compute_ns": [...], "both_ns": [...], "cpu_ns": [...]}

and {"error": TEXT} if it can't. A payload lies `offset` bytes behind every `stride` bytes of the file.
"""

import contextlib
import json
import mmap
import platform
import sys
import time

POISON = 0xA5
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE; `mmap` has no name for it


class Copying:
    """Copies to one place on the device, by PyTorch, from a tensor of the CPU with the bytes of the ring."""

    def __init__(self, torch, device, source, destination):
        self.torch, self.device, self.source, self.destination = torch, device, source, destination

    def submit(self, view):
        self.copied = self.destination[: len(view)]
        self.copied.copy_(view, non_blocking=True)

    def wait(self):
        if self.device.type == "cuda":
            self.torch.cuda.current_stream().synchronize()


class Registered(Copying):
    """Copies by ringcache.cuda from a registered mapping."""

    def __init__(self, torch, device, source, destination, driver):
        super().__init__(torch, device, source, destination)
        self.driver, self.events = driver, []

    def submit(self, view):
        self.copied = self.destination[: len(view)]
        stream = self.torch.cuda.current_stream().cuda_stream if self.device.type == "cuda" else 0
        self.events.append(self.driver.copy(self.copied.data_ptr(), view.data_ptr(), len(view), stream=stream))

    def wait(self):
        for event in self.events:
            while not event.done():  # PyTorch's wait spins, too
                pass
        self.events.clear()


class Receiver(Copying):
    """What a worker of vLLM 0.32 does with a tensor of the shared-memory ring: the decoder copies its bytes into a new
    pinned buffer (v1/serial_utils.py, a decoder with share_mem=False), and the batch, if it is of one item, goes to the device
    as it is (multimodal/inputs.py)."""

    def new(self, size):
        return self.torch.empty(size, dtype=self.torch.uint8, pin_memory=self.device.type == "cuda")

    def decode(self, view):
        return view.pin_memory() if self.device.type == "cuda" else view.clone()

    def submit(self, view):
        self.copied = self.decode(view).to(self.device, non_blocking=True)


class ReceiverOfTwo(Receiver):
    """The same with a batch of two items, which vLLM joins in another new pinned buffer: a second copy on the host."""

    def submit(self, view):
        half = len(view) // 2
        items = [self.decode(view[:half]), self.decode(view[half:])]
        joined = self.torch.concat(items, out=self.new(len(view)))
        self.copied = joined.to(self.device, non_blocking=True)


class ReceiverReusing(Receiver):
    """The same with a pinned buffer that is made once."""

    def __init__(self, torch, device, source, destination):
        super().__init__(torch, device, source, destination)
        self.buffer = self.new(len(destination))

    def submit(self, view):
        self.buffer[: len(view)].copy_(view)
        self.copied = self.buffer[: len(view)].to(self.device, non_blocking=True)


class Peer:
    def __init__(self, torch, device):
        self.torch, self.device = torch, torch.device(device)
        self.turn, self.arms, self.driver = 0, {}, None

    def map(self, path, size):
        """A mapping of its own, as a tensor of bytes."""
        with open(path, "r+b") as f:
            memory = mmap.mmap(f.fileno(), size)
        with contextlib.suppress(OSError):  # a kernel before 5.14
            memory.madvise(POPULATE_WRITE)
        return self.torch.frombuffer(memory, dtype=self.torch.uint8)

    def open(self, path, bytes, largest):
        torch, left_out = self.torch, {}
        plain = self.map(path, bytes)
        destination = torch.empty(largest, dtype=torch.uint8, device=self.device)
        common = torch, self.device
        pinned = torch.empty(bytes, dtype=torch.uint8, pin_memory=self.device.type == "cuda").copy_(plain)
        self.arms = {
            "torch pinned": Copying(*common, pinned, destination),
            "torch pageable": Copying(*common, plain.clone(), destination),
            "ring not registered, torch": Copying(*common, plain, destination),
            "vLLM receiver": Receiver(*common, plain, destination),
            "vLLM receiver, two items": ReceiverOfTwo(*common, plain, destination),
            "vLLM receiver, reused buffer": ReceiverReusing(*common, plain, destination),
        }
        try:
            if self.device.type != "cuda":
                raise RuntimeError(f"the device is {self.device}")
            from ringcache import cuda

            self.driver = cuda.Driver(self.device.index)
            mapped = self.map(path, bytes)
            self.driver.register(mapped.data_ptr(), bytes)
            self.arms["ring registered, torch"] = Registered(*common, mapped, destination, self.driver)
        except Exception as e:  # no ringcache here, or a driver that refuses: the other arms go on
            left_out["ring registered, torch"] = f"{type(e).__name__}: {e}"
        return {"left_out": left_out}

    def view(self, arm, size, offset, stride):
        self.turn += 1
        begin = self.turn % (len(arm.source) // stride) * stride + offset
        return arm.source[begin : begin + size]

    def measure(self, arm, size, offset, stride, batch, rounds):
        torch, arm, clock = self.torch, self.arms[arm], time.perf_counter_ns
        view = self.view(arm, size, offset, stride)
        arm.destination.fill_(POISON)
        arm.submit(view)
        arm.wait()
        if not torch.equal(arm.copied.cpu(), view):
            raise RuntimeError(f"a copy of {size} bytes is damaged")
        submit, total = [], []
        for _ in range(rounds):
            views = [self.view(arm, size, offset, stride) for _ in range(batch)]
            begin = clock()
            for view in views:
                arm.submit(view)
            submitted = clock()
            arm.wait()
            total.append(clock() - begin)
            submit.append(submitted - begin)
        return {"submit_ns": submit, "total_ns": total}

    def overlap(self, arm, size, stride, matrix, rounds):
        """Copies on one stream beside multiplications on another that take about as long."""
        torch, arm = self.torch, self.arms[arm]
        factor = torch.randn(matrix, matrix, device=self.device, dtype=torch.bfloat16)
        product = torch.empty_like(factor)
        views = [self.view(arm, size, 0, stride) for _ in range(min(max((1 << 30) // size, 8), 256))]
        streams = [torch.cuda.Stream(self.device) if self.device.type == "cuda" else contextlib.nullcontext()
                   for _ in range(2)]

        def on(stream):
            return torch.cuda.stream(stream) if self.device.type == "cuda" else stream

        def multiply(times):
            with on(streams[0]):
                for _ in range(times):
                    torch.mm(factor, factor, out=product)

        def copy():
            with on(streams[1]):
                for view in views:
                    arm.submit(view)

        def timed(*steps):
            self.synchronize()
            begin, cpu = time.perf_counter_ns(), time.thread_time_ns()
            for step in steps:
                step()
            cpu = time.thread_time_ns() - cpu
            self.synchronize()
            spent = time.perf_counter_ns() - begin
            arm.wait()
            return spent, cpu

        timed(lambda: multiply(3), copy)  # the first ones take longer
        times = max(1, round(timed(copy)[0] / (timed(lambda: multiply(10))[0] / 10)))
        answer = {"copies_ns": [], "compute_ns": [], "both_ns": [], "cpu_ns": []}
        for _ in range(rounds):
            answer["copies_ns"].append(timed(copy)[0])
            answer["compute_ns"].append(timed(lambda: multiply(times))[0])
            both, cpu = timed(lambda: multiply(times), copy)
            answer["both_ns"].append(both)
            answer["cpu_ns"].append(cpu)
        return answer

    def synchronize(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def close(self):
        if self.driver is not None and (arm := self.arms.get("ring registered, torch")):
            self.driver.unregister(arm.source.data_ptr())
            self.driver.close()


def main():
    device = sys.argv[1]
    try:
        import torch

        hello = {"versions": {"python": platform.python_version(), "torch": torch.__version__,
                              "cuda of torch": str(torch.version.cuda)}}
        if device != "cpu" and not torch.cuda.is_available():
            raise RuntimeError(f"torch {torch.__version__} finds no CUDA device")
        peer = Peer(torch, device)
        if device != "cpu":
            torch.cuda.set_device(peer.device)
    except Exception as e:
        print(json.dumps({"error": f"{type(e).__name__}: {e}"}), flush=True)
        return
    print(json.dumps(hello), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(peer, request.pop("op"))(**request)
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)
    peer.close()


if __name__ == "__main__":
    main()
