"""A worker's mappings of the daemon's segment, and what a GPU's driver knows of them."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

import torch

from .._torch import TorchBytes
from ..cuda import Driver
from ..daemon import Mapping, Segment
from ..errors import RingcacheError

_logger: Final = logging.getLogger("vllm.ringcache")

_MOST: Final = 3  # that are kept: the daemon's, and those of before


class Mappings:
    """Made at the first use of a segment, and registered with the driver of ``device`` if ``pin``
    is set. Threads may share them."""

    def __init__(self, *, writable: bool, pin: bool, device: torch.device) -> None:
        self._writable = writable
        self._pin = pin
        self._device = device
        self._lock = threading.Lock()
        self._mappings: dict[Segment, Mapping] = {}
        self._pinned: dict[Segment, tuple[Driver, int]] = {}

    def of(self, segment: Segment) -> Mapping:
        with self._lock:
            mapping = self._mappings.get(segment)
            if mapping is None:
                mapping = Mapping(segment, writable=self._writable)
                self._mappings[segment] = mapping
                self._register(segment, mapping)
                while len(self._mappings) > _MOST:
                    self._unmap(next(iter(self._mappings)))
            return mapping

    def pinned(self, segment: Segment) -> bool:
        """Whether the device copies by itself out of the mapping, and into it."""
        with self._lock:
            return segment in self._pinned

    def close(self) -> None:
        with self._lock:
            for segment in list(self._mappings):
                self._unmap(segment)

    def _unmap(self, segment: Segment) -> None:
        mapping = self._mappings.pop(segment)
        if segment in self._pinned:
            driver, address = self._pinned.pop(segment)
            try:
                torch.cuda.synchronize(self._device)
                driver.unregister(address)
                driver.close()
            except Exception as e:
                _logger.warning("The segment %r stays pinned: %s", segment.name, e)
                self._pinned[segment] = driver, address  # which keeps nothing mapped by itself
                _kept.append(mapping)
                return
        mapping.close()

    def _register(self, segment: Segment, mapping: Mapping) -> None:
        """Pin the mapping, best effort."""
        if not self._pin or self._device.type != "cuda":
            return
        began = time.monotonic()
        address = TorchBytes(mapping.view(0, segment.size)).address
        index = self._device.index
        if index is None:
            index = torch.cuda.current_device()
        driver = None
        try:
            driver = Driver(index)
            driver.register(address, segment.size, read_only=not self._writable)
        except RingcacheError as e:
            if driver is not None:
                driver.close()
            _logger.warning("The segment %r is not pinned, so loads block: %s", segment.name, e)
            return
        self._pinned[segment] = driver, address
        _logger.info(
            "Pinned %d bytes of segment %r for %s in %.2f s",
            segment.size,
            segment.name,
            driver.name,
            time.monotonic() - began,
        )


# Mappings that the driver goes on using.
_kept: Final[list[Mapping]] = []
