"""Whether a released lmcache can be imported."""

import importlib.util


def installed():
    spec = importlib.util.find_spec("lmcache")
    return spec is not None and spec.origin is not None  # the folder lmcache of this repository has none
