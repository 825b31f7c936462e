// Package kvevents follows the KV events of vLLM engines into package directory: what an engine has in its
// own KV cache and, with LMCache's connector and ringcache serve, in the daemon's memory, too.
//
// [Follow] connects to one publisher (--kv-events-config of vLLM, "publisher": "zmq", bound to an address)
// and goes on until its context ends. Batches are numbered. With the publisher's replay endpoint it asks for
// those that it has missed, from the first one on when it begins; without one, and where the publisher has
// them no more, the instance is stale: directory.Prefix.Stale. A replay that fails is tried again. A
// publisher that does not answer for [Source].Grace is an instance that has gone.
//
// The key of a block is made of the last 8 bytes of its hash, in the space of its model: that is all that an
// engine sends by default. [AppendKeys] makes the same of a kv.Chain of a router, whose scheme has to be that
// of the engine: PYTHONHASHSEED, the hash algorithm and the block size. [Handler] answers routers without Go.
//
// Errors of the connection go to the log, one line a minute. What a publisher sends is bounded and checked; a
// batch that can't be read is a lost one.
package kvevents
