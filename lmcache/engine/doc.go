// Package engine stores the KV of requests in levels and brings it back, as LMCache's in-process engine does
// (lmcache/v1/cache_engine.py of 0.5.6, lmcache.inprocess in 0.5.7), for programs in Go that have an engine's
// paged KV buffers in their memory.
//
// An [Engine] is for one worker. Store copies the chunks of a request from the slots of its tokens into the
// memory level of a [tier.Store], which writes them to lower levels; Retrieve copies them back, into any
// other slots; Lookup returns up to where they are there. SaveLayers and LoadLayers do so layer by layer: an
// engine saves a layer as soon as it has computed it, and uses a layer while the next one is loaded. All of
// them take tokens, from the first of the request on, with the number of those that are left out, which is
// LMCache's mask, and a slot for each.
//
// Bytes are copied once: from the buffers into the place that was reserved in the segment, or from a pinned
// place of the segment into the buffers.
//
// # What is a hit
//
// A chunk is found if its tokens and all in front of them are equal, and model, dtype and shape agree. How
// that is known depends on the keys:
//
//   - Keys of ours, without a Database: everything is in the space of the key, which is kv.Layout.Space, with
//     the format behind it if layers are objects of their own, as in "kv....KV_T2D". Names are BLAKE3 hashes;
//     that of a layer has "@" and its number behind it. Whole chunks are those of `ringcache serve`: over the
//     same tier.Store, or over lower levels that both have, an engine finds what LMCache's workers stored
//     there, and they what it stored. The note of an object is when it was stored, for Options.TTL.
//   - LMCache's keys, with a Database: the name is LMCache's text, and the note its RemoteMetadata, which
//     levels with a layout of LMCache keep. The key has model, workers, hash and dtype. Of the rest, the note
//     decides: an object whose dtype, shape or format is another one is no hit. PYTHONHASHSEED has to be that
//     of the others, see kv.Scheme.
//
// # Levels that are shared with LMCache
//
// Files of its FS connector: disk.Options with Layout disk.LMCache, Space and Shared. A Redis of its Redis
// connector: redis.Options with Layout redis.LMCache. Both take chunks of all layers and chunks of one layer.
//
// # Errors
//
// What has no room, or is not there, is no error: less is stored, or found. After an error in the middle of a
// call, chunks of it are there whole or not at all, nothing is pinned, and no room is reserved. Of a Save,
// nobody finds anything before Commit. Refused arguments wrap fs.ErrInvalid. A load in layers reports
// [ErrLost] if a chunk that was found goes before its turn. Slots of what was not loaded may have been
// written to: an engine computes it anyway.
//
// # Lifetimes and concurrency
//
// Any number of goroutines may use an Engine, as long as no slot is written to by two of them. It has nothing
// to close, and no goroutine outlives the call, or the loop over Load.Layers, that began it. Each call pins
// under a lease of its own, which ends with the call, or by time if the process is killed. What Lookup pins
// is the caller's lease's.
//
// Buffers are in the memory of the process. There is no copy to or from a GPU: package pin/cuda copies to
// memory that it has allocated itself, and not to the KV buffers of an engine.
package engine
