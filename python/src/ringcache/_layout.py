"""What a reader remembers of the objects that it decoded.

Decoding depends on nothing but the metadata, the document and the size of a chunk, and most
objects of an engine share theirs: images of one size have one layout. A reader keeps some of
them, and compares the bytes at each look, so it believes nothing that it would not find if it
decoded the chunk for the first time. A layout has offsets and no bytes of tensors; those
are cut from the mapping anew.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from . import metadata
from .errors import CorruptError
from .generation import ItemForm
from .items import Elem, Item, ItemDecoder, Nested
from .tensor import Tensor

#: What is larger is not remembered.
MAX_METADATA: Final = 512
MAX_DOCUMENT: Final = 2048
#: Sizes of chunks with layouts, and layouts of one size.
MAX_SIZES: Final = 128
PER_SIZE: Final = 2


class _Span:
    """A tensor without its bytes: where they are in the object's data, or a copy of them
    where the document has them."""

    __slots__ = ("begin", "copy", "dtype", "end", "shape")

    def __init__(self, tensor: Tensor, begin: int | None) -> None:
        self.dtype, self.shape = tensor.dtype, tensor.shape
        self.begin = begin or 0
        self.end = self.begin + tensor.nbytes
        self.copy = tensor.tobytes() if begin is None else None

    def tensor(self, data: memoryview) -> Tensor:
        copy = self.copy
        # A view of its own: a program may release that of another tensor.
        view = data[self.begin : self.end] if copy is None else memoryview(copy)
        return Tensor._unchecked(self.dtype, self.shape, view)


_Template: TypeAlias = Any  # Nested, with spans in the place of tensors


def _fill(template: _Template, data: memoryview) -> Nested:
    if type(template) is _Span:
        return template.tensor(data)
    if type(template) is list:  # a new one: a program may change what it got
        return [_fill(inner, data) for inner in template]
    return template  # type: ignore[no-any-return]


class _Decoder(ItemDecoder):
    """Makes spans of tensors."""

    def tensor(self, triple: list[Any]) -> Any:
        tensor, frame = super().tensor(triple), triple[2]
        if type(frame) is not int:
            return _Span(tensor, None)
        return _Span(tensor, sum(f.nbytes for f in self.frames[:frame]))


class Layout:
    """A decoded object without the bytes of its tensors. It does not change."""

    __slots__ = ("_elems", "_modality", "_single", "document", "metadata", "nbytes")

    def __init__(
        self, metadata: bytes, document: bytes, nbytes: int, value: _Template
    ) -> None:
        self.metadata = metadata
        self.document = document
        self.nbytes = nbytes  # of the data, which begin with the document
        self._single: _Span | None = None
        self._elems: list[tuple[str, Elem, _Template]] = []
        self._modality = ""
        if isinstance(value, Item):
            self._modality = value.modality
            self._elems = [(key, elem, elem.data) for key, elem in value.items()]
        else:
            self._single = value

    def value(self, data: memoryview) -> Item | Tensor:
        """The object whose data these are."""
        if self._single is not None:
            return self._single.tensor(data)
        elems = {}
        for key, elem, template in self._elems:
            if type(template) is _Span:
                elem = Elem(template.tensor(data), elem.field)
            elif type(template) is list:
                elem = Elem(_fill(template, data), elem.field)
            elems[key] = elem
        return Item._of(elems, self._modality)


class Layouts:
    """The layouts that a reader remembers, by the size of their chunk. Threads may share it."""

    def __init__(self, form: ItemForm, limit: int | None) -> None:
        self._form = form
        self._limit = limit
        #: By the bytes between a chunk's reader count and its end; the newest first.
        self.known: dict[int, tuple[Layout, ...]] = {}

    def learn(self, body: memoryview) -> Layout | None:
        """The layout of an object, which is kept for the next call. None if it is too large to
        keep, or the bytes are not an object: then the call that decodes them raises the error."""
        try:
            layout = self._decode(body)
        except CorruptError:
            return None
        if layout is not None:
            if len(self.known) >= MAX_SIZES and len(body) not in self.known:
                self.known.clear()
            before = self.known.get(len(body), ())
            self.known[len(body)] = (layout, *before[: PER_SIZE - 1])
        return layout

    def _decode(self, body: memoryview) -> Layout | None:
        # What is decoded is what is kept: something may write to the chunk meanwhile.
        front = body[:MAX_METADATA].tobytes()
        head = metadata.parse(memoryview(front), len(body))
        if not head.lengths or head.lengths[0] > MAX_DOCUMENT:
            return None
        if self._limit is not None and metadata.used(head) > self._limit:
            return None
        data = body[len(body) - head.nbytes :]
        at = head.lengths[0]
        document = data[:at].tobytes()
        frames = [memoryview(document)]
        for length in head.lengths[1:]:
            frames.append(data[at : at + length])
            at += length
        decoder = _Decoder(frames)
        value = decoder.single() if head.kind == metadata.TENSOR else decoder.item(self._form)
        return Layout(front[: head.end], document, head.nbytes, value)
