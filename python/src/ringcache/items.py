"""Items and tensors from MessagePack frames.

An object is a list of frames: a MessagePack document, then the bytes of every
larger tensor. The document says ``[dtype, shape, data]`` where data is either
the bytes (extension type 3) or the index of the frame that holds them.

The document is copied before it is decoded, so that a writer which changes it
meanwhile cannot confuse the decoder; the other frames are viewed in place.
Small tensors (vLLM: below 256 bytes) lie inside the document, so they view
that private copy.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    ItemsView,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from ._arguments import kind
from .errors import ArgumentError, CorruptError, HandleError
from .generation import ItemForm
from .signature import INVALID, MISSING
from .tensor import MAX_DIMS, Tensor

#: Largest document that is decoded. msgspec bounds every declared length by the
#: bytes that are there, but a byte of hostile input can still become an empty
#: container, about 80 bytes of memory; this bounds the whole.
MAX_DOCUMENT: Final = 16 << 20
#: Deepest nesting of lists in an element's data.
MAX_DEPTH: Final = 64

_EXT_RAW: Final = 3

#: One frame. Tensors view it, so it must not change while they are used.
Frame: TypeAlias = "bytes | bytearray | memoryview"
#: Data of an element: tensors and scalars in nested lists.
Nested: TypeAlias = "Tensor | int | float | list[Nested] | None"
Slices: TypeAlias = "tuple[slice | tuple[slice, ...], ...]"


@dataclass(frozen=True)
class Batched:
    """The item is one row of the batch."""

    keep_on_cpu: bool = False


@dataclass(frozen=True)
class Flat:
    """The item is a slice of the batch along ``dim``."""

    slices: Slices
    dim: int = 0
    keep_on_cpu: bool = False


@dataclass(frozen=True)
class Shared:
    """All ``batch_size`` items share the value."""

    batch_size: int
    keep_on_cpu: bool = False


Field: TypeAlias = Batched | Flat | Shared


class Elem(NamedTuple):
    """One entry of an item."""

    data: Nested
    field: Field

    @property
    def tensor(self) -> Tensor:
        """The data, if it is one tensor; else a ``TypeError`` is raised."""
        if not isinstance(self.data, Tensor):
            raise TypeError(f"the data is not a tensor but {kind(self.data)}")
        return self.data


class Item(Mapping[str, Elem]):
    """A MultiModalKwargsItem: key to :class:`Elem`, in the writer's order."""

    def __init__(self, elems: Mapping[str, Elem], modality: str = "") -> None:
        if not isinstance(elems, Mapping):
            raise ArgumentError(f"elems of an item must be a mapping, got {kind(elems)}")
        self._elems = dict(elems)
        #: Named by items of vLLM 0.15 and older only, else empty.
        self.modality = modality

    @classmethod
    def _of(cls, elems: dict[str, Elem], modality: str = "") -> Item:
        """The item that has a new dictionary, which is not copied."""
        item = cls.__new__(cls)
        item._elems = elems
        item.modality = modality
        return item

    def __getitem__(self, key: str) -> Elem:
        return self._elems[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._elems)

    def __len__(self) -> int:
        return len(self._elems)

    # What a mapping has by itself is slower.
    def __contains__(self, key: object) -> bool:
        return key in self._elems

    def keys(self) -> KeysView[str]:
        return self._elems.keys()

    def values(self) -> ValuesView[Elem]:
        return self._elems.values()

    def items(self) -> ItemsView[str, Elem]:
        return self._elems.items()

    def __repr__(self) -> str:
        return f"Item({self._elems!r})"

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor with its place: the key, or ``key.0.2`` inside lists."""
        for key, elem in self._elems.items():
            yield from _tensors(key, elem.data)


class Handle(NamedTuple):
    """Where an object is, from an address item."""

    address: int
    id: int
    #: 32 numbers, not yet verified; None where handles are not signed.
    signature: list[int] | None


def _tensors(place: str, data: Nested) -> Iterator[tuple[str, Tensor]]:
    if isinstance(data, Tensor):
        yield place, data
    elif isinstance(data, list):
        for i, inner in enumerate(data):
            yield from _tensors(f"{place}.{i}", inner)


def parse_address(item: Item, *, signed: bool = True) -> Handle | None:
    """The handle in an address item, or None if ``item`` holds data itself.

    ``signed`` is the generation's. Only the shape is checked here, the
    signature when the handle is used. Raises :class:`HandleError` with
    upstream's texts, and :class:`ArgumentError` for what is no item.
    """
    if not isinstance(item, Item) or not all([isinstance(e, Elem) for e in item.values()]):
        raise ArgumentError(
            "address items must be an Item of Elems, as decode_item returns it, "
            f"got {kind(item)}"
        )
    if "address" not in item:
        return None
    if "monotonic_id" not in item or (signed and "signature" not in item):
        raise HandleError(MISSING if signed else "Missing monotonic_id of an SHM handle.")
    address, id = item["address"].data, item["monotonic_id"].data
    # type() and not isinstance: a bool is an int, and upstream refuses it.
    if (
        type(address) is not int
        or not 0 <= address < 1 << 64
        or type(id) is not int
        or not 0 <= id < 1 << 32
    ):
        raise HandleError(INVALID if signed else "Invalid address or id of an SHM handle.")
    if not signed:
        return Handle(address, id, None)
    signature = item["signature"].data
    if not isinstance(signature, list):
        raise HandleError(INVALID)
    # Elements that are no numbers fail verification, as upstream.
    return Handle(address, id, signature)  # type: ignore[arg-type]


class _Arguments(msgspec.Struct, forbid_unknown_fields=True):
    keep_on_cpu: bool = False


class _Number(msgspec.Struct, forbid_unknown_fields=True):
    data: int
    field: tuple[Literal["batched"], _Arguments]


class _Numbers(msgspec.Struct, forbid_unknown_fields=True):
    data: list[int]
    field: tuple[Literal["batched"], _Arguments]


class _Address(msgspec.Struct, forbid_unknown_fields=True):
    """The document that the writers make of a signed handle."""

    address: _Number
    monotonic_id: _Number
    signature: _Numbers


_ADDRESS: Final = msgspec.msgpack.Decoder(_Address)
_ADDRESS_MAX: Final = 1024  # bytes; it takes less than half of them


def decode_address(
    frames: Sequence[Frame], form: ItemForm = ItemForm.MAP, *, signed: bool = True
) -> Handle | None:
    """The handle in the frames of an address item, or None if they are those of another item.

    It is ``parse_address(decode_item(frames, form), signed=signed)``, and raises what they
    raise, but makes no item where the document is as writers make it.
    """
    if signed and form is ItemForm.MAP and type(frames) is list and len(frames) == 1:
        try:
            frame = memoryview(frames[0])
            if frame.nbytes <= _ADDRESS_MAX and frame.c_contiguous:
                found = _ADDRESS.decode(bytes(frame))
                address, id = found.address.data, found.monotonic_id.data
                if 0 <= address < 1 << 64 and 0 <= id < 1 << 32:
                    return Handle(address, id, found.signature.data)
        except (msgspec.MsgspecError, ValueError, TypeError, BufferError):
            pass  # what it is, or what is wrong with it, is found below
    return parse_address(decode_item(frames, form), signed=signed)


def decode_item(frames: Sequence[Frame], form: ItemForm = ItemForm.MAP) -> Item:
    """Decode the frames of a MultiModalKwargsItem.

    Raises :class:`CorruptError`, and :class:`ArgumentError` for what are no frames.
    """
    if not isinstance(form, ItemForm):
        raise ArgumentError(f"form must be an ItemForm, got {kind(form)}")
    return ItemDecoder(frames).item(form)


def decode_tensor(frames: Sequence[Frame]) -> Tensor:
    """Decode the frames of a single tensor. Raises as :func:`decode_item`."""
    return ItemDecoder(frames).single()


class _Raw:
    """Bytes of extension type 3."""

    __slots__ = ("data",)

    def __init__(self, data: memoryview) -> None:
        self.data = data


def _ext_hook(code: int, data: memoryview) -> _Raw:
    if code != _EXT_RAW:
        raise CorruptError(
            f"extension type {code} refused: only raw arrays ({_EXT_RAW}) are data, the others "
            "are pickles"
        )
    return _Raw(data)


_SCALARS: Final = frozenset((int, float, bool))

_MSGPACK: Final = msgspec.msgpack.Decoder(ext_hook=_ext_hook)


class ItemDecoder:
    """Decodes the frames of one object."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        if not isinstance(frames, Sequence) or isinstance(
            frames, (str, bytes, bytearray, memoryview)
        ):
            raise ArgumentError(
                f"frames must be a sequence of bytes or memoryviews, got {kind(frames)}"
            )
        if not frames:
            raise CorruptError("object has no frames")
        try:
            self.frames: list[memoryview] = [memoryview(frame).cast("B") for frame in frames]
        except (TypeError, ValueError, BufferError) as e:
            kinds = ", ".join(sorted({kind(frame) for frame in frames})[:5])
            raise ArgumentError(
                f"frames must be bytes or memoryviews of contiguous bytes, got {kinds}"
            ) from e
        self.unnamed: set[int] = set(range(1, len(self.frames)))

    def item(self, form: ItemForm) -> Item:
        document = self.document()
        if form is ItemForm.MAP:
            elems = {
                _text(key, "item key"): self.elem(key, value, _named_field)
                for key, value in _map(document, "item").items()
            }
            self.finish()
            return Item._of(elems)
        field = _positional_field if form is ItemForm.POSITIONAL else _named_field
        elems, modalities = {}, set()
        for value in _list(document, "item"):
            named = _map(value, "elem")
            key = _text(named.get("key"), "elem key")
            if key in elems:
                raise CorruptError(f"item has the key {key[:64]!r} twice")
            modalities.add(_text(named.get("modality"), "elem modality"))
            elems[key] = self.elem(key, named, field)
        if len(modalities) > 1:
            raise CorruptError(f"item has {len(modalities)} modalities")
        self.finish()
        return Item._of(elems, modalities.pop() if modalities else "")

    def single(self) -> Tensor:
        tensor = self.tensor(_list(self.document(), "tensor"))
        self.finish()
        return tensor

    def document(self) -> Any:
        main = self.frames[0]
        if main.nbytes > MAX_DOCUMENT:
            raise CorruptError(f"document is {main.nbytes} bytes, at most {MAX_DOCUMENT} are read")
        try:
            return _MSGPACK.decode(bytes(main))
        except CorruptError:
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as e:
            raise CorruptError(f"document is not MessagePack of an object: {e}") from e

    def finish(self) -> None:
        if self.unnamed:
            raise CorruptError(f"object has {len(self.frames)} frames, nothing names frame {min(self.unnamed)}")

    def elem(self, key: str, value: Any, field: Callable[[Any], Field]) -> Elem:
        named = _map(value, "elem")
        if "data" not in named or "field" not in named:
            raise CorruptError(f"elem {key[:64]!r} lacks data or field")
        data = named["data"]
        if data is not None and type(data) not in _SCALARS:
            data = self.nested(data, MAX_DEPTH)
        return Elem(data, field(named["field"]))

    def nested(self, value: Any, depth: int) -> Nested:
        if type(value) in _SCALARS:
            return value  # type: ignore[no-any-return]
        if type(value) is not list:
            if type(value) is dict:
                raise CorruptError(
                    "tensor is outside the message (mm_tensor_ipc other than direct_rpc); "
                    "it cannot be read here"
                )
            raise CorruptError(f"elem data holds a {type(value).__name__}")
        if value and type(value[0]) is str:
            return self.tensor(value)
        if depth == 0:
            raise CorruptError(f"elem data is nested deeper than {MAX_DEPTH}")
        if _SCALARS.issuperset(map(type, value)):  # as those of a signature
            return value
        return [self.nested(inner, depth - 1) for inner in value]

    def tensor(self, triple: list[Any]) -> Tensor:
        if len(triple) != 3:
            raise CorruptError(f"tensor has {len(triple)} parts, expected dtype, shape and data")
        dtype, dims, data = triple
        shape = _list(dims, "tensor shape")
        if len(shape) > MAX_DIMS or any(type(n) is not int for n in shape):
            raise CorruptError("tensor shape is not a short list of integers")
        if type(data) is int:
            if not 0 < data < len(self.frames):
                raise CorruptError(f"tensor is in frame {data} of {len(self.frames)}")
            # Or a short document could stand for any amount of memory.
            if data not in self.unnamed:
                raise CorruptError(f"document names frame {data} twice")
            self.unnamed.remove(data)
            raw = self.frames[data]
        elif type(data) is _Raw:
            raw = data.data
        else:
            raise CorruptError(f"tensor data is a {type(data).__name__}")
        return Tensor(_text(dtype, "tensor dtype"), tuple(shape), raw.toreadonly())


def _list(value: Any, what: str) -> list[Any]:
    if type(value) is not list:
        raise CorruptError(f"{what} is a {type(value).__name__}, expected an array")
    return value


def _map(value: Any, what: str) -> dict[Any, Any]:
    if type(value) is not dict:
        raise CorruptError(f"{what} is a {type(value).__name__}, expected a map")
    return value


def _text(value: Any, what: str) -> str:
    if type(value) is not str:
        raise CorruptError(f"{what} is a {type(value).__name__}, expected a string")
    return value


def _int(value: Any, what: str) -> int:
    if type(value) is not int:
        raise CorruptError(f"{what} is a {type(value).__name__}, expected an integer")
    return value


def _bool(value: Any, what: str) -> bool:
    if type(value) is not bool:
        raise CorruptError(f"{what} is a {type(value).__name__}, expected a boolean")
    return value


_BATCHED: Final = (Batched(False), Batched(True))
_FIELD_ARGS: Final = {"batched": (), "flat": ("slices", "dim"), "shared": ("batch_size",)}


def _named_field(value: Any) -> Field:
    """``[name, {arguments}]``"""
    if (  # the usual one
        type(value) is list
        and len(value) == 2
        and value[0] == "batched"
        and type(args := value[1]) is dict
        and len(args) == 1
        and type(keep := args.get("keep_on_cpu")) is bool
    ):
        return _BATCHED[keep]
    pair = _list(value, "field")
    if len(pair) != 2:
        raise CorruptError(f"field has {len(pair)} parts, expected a name and its arguments")
    return _field(_text(pair[0], "field name"), _map(pair[1], "field arguments"))


def _positional_field(value: Any) -> Field:
    """``[name, *arguments]``"""
    parts = _list(value, "field")
    name = _text(parts[0], "field name") if parts else ""
    names = _FIELD_ARGS.get(name, ())
    if len(parts) - 1 > len(names):
        raise CorruptError(f"field {name[:64]!r} has {len(parts) - 1} arguments")
    return _field(name, dict(zip(names, parts[1:], strict=False)))


def _field(name: str, args: dict[Any, Any]) -> Field:
    known = _FIELD_ARGS.get(name)
    if known is None:
        raise CorruptError(f"field {name[:64]!r} is not batched, flat or shared")
    args = dict(args)
    keep = _bool(args.pop("keep_on_cpu", False), "keep_on_cpu")
    if not args.keys() <= set(known):
        raise CorruptError(f"field {name} has unknown arguments")
    if name == "batched":
        return Batched(keep)
    if known[0] not in args:
        raise CorruptError(f"field {name} lacks {known[0]}")
    if name == "shared":
        return Shared(_int(args["batch_size"], "batch_size"), keep)
    return Flat(_slices(args["slices"]), _int(args.get("dim", 0), "dim"), keep)


def _slices(value: Any) -> Slices:
    out: list[slice | tuple[slice, ...]] = []
    for part in _list(value, "slices"):
        inner = _list(part, "slice")
        # A slice is three numbers or nils; anything starting with an array is
        # the slices of one item, one per dimension.
        if inner and type(inner[0]) is list:
            out.append(tuple(_slice(s) for s in inner))
        else:
            out.append(_slice(inner) if inner else ())
    return tuple(out)


def _slice(value: Any) -> slice:
    parts = _list(value, "slice")
    if len(parts) != 3 or any(p is not None and type(p) is not int for p in parts):
        raise CorruptError("slice is not three integers or nils")
    return slice(*parts)
