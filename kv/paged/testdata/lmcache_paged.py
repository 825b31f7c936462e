"""Makes lmcache.json: what LMCache's own copies between paged KV buffers and chunks make of random buffers.

    PYTHONPATH=LMCACHE "$env/bin/python" kv/paged/testdata/lmcache_paged.py kv/paged/testdata/lmcache.json

env is the environment of interop/setup.sh, LMCACHE a folder of interop/e2e/lmcache.sh; 0.5.6 and 0.5.7 make the same file.
The copies are those for devices without kernels of their own (lmcache/v1/platform/torch_ops), by block for chunks of all
layers, and by slot for chunks of one layer.
"""

import json
import random
import sys

import torch
from lmcache.lmcache_native import EngineKVFormat, TransferDirection
from lmcache.v1.platform.ops_types import PageBufferShapeDesc
from lmcache.v1.platform.torch_ops.mem_kernels import single_layer_kv_transfer
from lmcache.v1.platform.torch_ops.mp_mem_kernels import multi_layer_block_kv_transfer

DTYPES = {1: torch.uint8, 2: torch.float16, 4: torch.float32}


def dims(layout, nl, nb, bs, nh, hs):
    """Returns how many tensors a layout has, and their shape."""
    sizes = {"NL": nl, "TWO": 2, "NB": nb, "BS": bs, "NH": nh, "HS": hs, "CS": hs}
    *outer, inner = layout.split("_X_")
    tensors = 1
    for name in outer:
        tensors *= sizes[name]
    return tensors, [sizes[d] for d in inner.split("_")]


def nested(layout, tensors):
    if layout == "NL_X_TWO_X_NB_BS_NH_HS":
        return [(tensors[i], tensors[i + 1]) for i in range(0, len(tensors), 2)]
    return tensors if "_X_" in layout else tensors[0]


def case(r, layout, layered):
    planes = 1 if layout in ("NL_X_NB_BS_HS", "NL_X_NB_BS_NH_CS", "NL_X_NB_NH_BS_CS") else 2
    nl, nb, bs, hs, size = r.randint(1, 3), r.randint(3, 6), r.choice((2, 4)), r.randint(1, 4), r.choice((1, 2, 4))
    nh = 1 if layout == "NL_X_NB_BS_HS" else r.randint(1, 3)
    n, shape = dims(layout, nl, nb, bs, nh, hs)
    tensors = [torch.tensor(list(r.randbytes(torch.Size(shape).numel() * size)), dtype=torch.uint8).view(DTYPES[size]).reshape(shape)
               for _ in range(n)]
    fmt = getattr(EngineKVFormat, layout)
    out = {"layout": layout, "layers": nl, "blocks": nb, "blockTokens": bs, "heads": nh, "headSize": hs, "elementSize": size,
           "tensors": [t.contiguous().view(-1).view(torch.uint8).numpy().tobytes().hex() for t in tensors]}
    if layered is None:
        blocks = r.sample(range(nb), r.randint(1, 3))
        slots = [b * bs + i for b in blocks for i in range(bs)]
        chunk = torch.zeros(([2] if planes == 2 else []) + [nl, len(slots), nh * hs], dtype=DTYPES[size])
        desc = PageBufferShapeDesc()
        desc.kv_size, desc.nl, desc.nb, desc.bs, desc.nh, desc.hs, desc.element_size, desc.dtype = planes, nl, nb, bs, nh, hs, size, DTYPES[size]
        multi_layer_block_kv_transfer(nested(layout, tensors), [chunk], torch.tensor(blocks), "cpu", TransferDirection.D2H, desc, len(slots), fmt, 0)
        out.update(format=1 if planes == 2 else 6, slots=slots)
    else:
        layer = r.randrange(nl)
        slots = r.sample(range(nb * bs), r.randint(1, nb * bs))
        if r.random() < 0.5:
            slots[r.randrange(len(slots))] = -1  # which leaves the zeros of its token
        width = nh * hs
        token_major = layered == 2
        chunk = torch.zeros([len(slots), width] if planes == 1 else [len(slots), 2, width] if token_major else [2, len(slots), width], dtype=DTYPES[size])
        single_layer_kv_transfer(chunk, tensors[layer], torch.tensor(slots), TransferDirection.D2H, fmt, token_major)
        out.update(format=layered, layer=layer, slots=slots)
    out["chunk"] = chunk.contiguous().view(-1).view(torch.uint8).numpy().tobytes().hex()
    return out


def main():
    r = random.Random(32)
    cases = []
    for layout in ("NL_X_TWO_NB_BS_NH_HS", "NL_X_TWO_NB_NH_BS_HS", "NL_X_NB_TWO_BS_NH_HS", "NL_X_NB_TWO_NH_BS_HS", "NL_X_NB_BS_NH_CS", "NL_X_NB_NH_BS_CS",
                   "NL_X_NB_BS_HS", "NL_X_TWO_X_NB_BS_NH_HS", "TWO_X_NL_X_NB_BS_NH_HS", "NB_NL_TWO_BS_NH_HS", "NB_NL_TWO_NH_BS_HS"):
        cases += [case(r, layout, None) for _ in range(6)]
    for layout, formats in (("NL_X_TWO_NB_BS_NH_HS", (2, 3)), ("NL_X_NB_TWO_BS_NH_HS", (2, 3)), ("NL_X_NB_BS_HS", (6,))):
        cases += [case(r, layout, f) for f in formats for _ in range(6)]
    with open(sys.argv[1], "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


main()
