// Package serde turns multimodal items and tensors into the bytes that vLLM's
// shared-memory object store holds, and back.
//
// # What a chunk holds
//
// A chunk's payload is 4 bytes of reader count, a metadata pickle and the data
// (vllm/distributed/device_communicators/shm_object_storage.py, class
// MsgpackSerde, unchanged from 0.11.0 to 0.33.0). The data is a list of frames,
// one behind the other: frame 0 is a MessagePack document, the others are the
// bytes of the tensors that were too long to lie inside it
// (vllm/v1/serial_utils.py). The metadata is a pickled tuple of the value's
// type name, the number of data bytes and the list of frame lengths. It is
// always the last bytes of the payload that are the data.
//
// The layout of an item inside its document differs between releases of vLLM;
// [Options].Generation chooses it, nil stands for the newest.
//
// # Writing
//
// [NewPlan] validates a [Value] and works out its layout without copying any
// tensor. [Plan.CopyTo] writes it where it is to lie. A tensor without Data is
// only laid out: [Plan.Tensors] lists where its bytes belong, so that they can be
// produced in place. [Plan.Reset] makes a Plan of the next value in the same memory.
//
// # Reading
//
// [ParsePayload] reads the pickle and finds the data, [DecodeValue] reads these. A
// [Decoder] does both, and uses its memory again for the next value.
// Tensors of a decoded value are views of the given bytes: they are valid as long
// as these are, must not be written to, and [Clone] copies them out. Names, shapes
// and numbers are copied at once.
//
// Every decoder takes its input for hostile: lengths are checked against the
// bytes that are left before anything is allocated or sliced, nesting is bounded,
// pickles are never executed, and all of it still holds if the bytes change during
// the call. Errors wrap [ErrCorrupt] or [ErrUnsupported]. What memory a decoder
// takes is a small multiple of the main document, never of a length declared in it, nor of the number of frames
// that the metadata lists: a list longer than the document can refer to is refused
// before it is read.
//
// # Addresses
//
// A worker gets an object's [Address] in an item of its own, in place of the object.
// [AppendAddress] writes that item, [DecodeAddress] reads it, and neither allocates;
// [NewAddressItem] and [ParseAddress] are for items that are part of a message.
//
// # Messages
//
// Package serde/enginecore has the messages that a frontend and EngineCore exchange.
// Messages of one's own may contain items, too: [AppendItem] and [ReadItem] write and
// read an item in the middle of one. [Map] and [NDArray] are what messages contain
// besides, and items do not.
//
// Nothing here is bound to a goroutine; values may be shared as long as nobody
// writes to them. Reset, Clear and Decode write to their Plan or Decoder.
package serde
