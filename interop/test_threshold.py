"""Which tensors lie in the document, and which have a frame of their own: bytes of both sides compared."""

import pytest

import objects

KINDS = [("uint8", [0]), ("float32", [0, 4]), ("uint8", []), ("uint8", [1]), ("bfloat16", [5]), ("int64", [32]),
         ("uint8", [255]),
         ("uint8", [256]), ("float32", [3, 0, 2])]


def tensors():
    return [{"dtype": dtype, "shape": shape, "xof": "t%d" % i} for i, (dtype, shape) in enumerate(KINDS)]


@pytest.mark.parametrize("threshold", [0, 1, 2, 10, 256, 257, 1 << 20])
def test_threshold(pool, agents, threshold):
    def same(value):
        want = pool.writer.call("encode", value=value, threshold=threshold)
        got = agents[0].call("serde.encode", value=value, threshold=threshold,
                             generation=pool.release.version)["frames"]
        assert got == want, value
        return want

    for t in tensors():
        frames = same({"type": "tensor", "data": t})
        n = len(objects.content(t))
        assert len(frames) == (1 if n < threshold else 2)
    data = [*tensors(), [tensors()[0], 5, [tensors()[1]]]]
    same({"type": "item", "fields": [{"name": "x", "data": data, "field": {"kind": "batched"}}]})
