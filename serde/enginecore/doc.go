// Package enginecore encodes the messages that a frontend sends to vLLM's EngineCore,
// and decodes what EngineCore answers, for every release that pycompat lists. It is the
// frontend's half: package engine/enginetest/wire is the engine's.
//
// A [Codec], of [New], belongs to one generation. At the start the engine sends a
// [Handshake], gets an [Init] and sends [Ready]. Afterwards the frontend sends requests
// ([Codec.EncodeRequest]), aborts ([EncodeAbort]) and calls of methods
// ([Codec.EncodeCall]), and reads [Outputs] ([Codec.DecodeOutputs], or
// an [OutputsReader] for one message after the other). Everything that is
// sent comes as the frames of one ZMQ message, its type first.
//
// # Parameters
//
// [Codec.ParseSampling] and [Codec.ParsePooling] turn a map of parameters into a
// [Params], once: checked, immutable, and in the forms that a decoder gives. What an
// engine would raise an exception for is refused there, since
// an engine whose input thread has ended lives on and is deaf. A request is
// encoded once, too: [Message.Child] puts the id and the seed of each of several
// sequences into the bytes that are there.
//
// # Hostile input
//
// Every decoder takes its input for hostile, as package serde does, and errors are of
// its kinds. [Codec.DecodeOutputs] loses as little as it can: a part that can't be read
// is reported beside those that can.
package enginecore
