// Package encoder keeps account of what encoders computed, the embeddings of images, sounds and videos, and
// of where they may be found again.
//
// The manager. A [Manager] is vLLM's EncoderCacheManager: it decides which outputs stay on the device of
// an engine. Room is counted in embeddings, not in bytes. A request needs the items that it allocated or
// hit, until it frees them; an item that no request needs waits, in order of its last release, and goes when
// somebody needs the room. Workers are told what went by [Manager.TakeFreed]. With the same calls it
// evicts what vLLM's class of the same release would, step by step. A [Rule] decides otherwise about what
// goes first, and [Manager.Pin] keeps an item for good. A Manager only counts: the
// embeddings are the caller's.
//
// Keys. The identity of an item has three forms. The identifier of its feature is what engines, connectors and
// the manager go by: the hash of its content, mm_hash, with the name of a LoRA in front where the
// encoder is adapted ([Identifier]). [LMCacheKey] is the key of the same item in LMCache. And a
// [Fingerprint] is everything that two engines must share for one to use the other's embeddings; its
// text is the space of a key in package tier.
//
// [CheckIdentifier] refuses identifiers that are no content. An engine without processor cache and without
// prefix caching counts its items instead of hashing them, and so does the next engine: what one stored under
// such an identifier is another image's embedding for the other, and nothing reports an error.
//
// Files. A [Tree] is the folder of vLLM's ECExampleConnector as a layout of package tier/disk: connectors
// read what a level over it wrote, and the reverse. [Save] and [Load] keep a tensor in any level of package
// tier; a [Note] beside the bytes has dtype and shape. [Tree.Import] and [Tree.Export] copy such folders into
// a level and out of it.
//
// Concurrency. A Manager may be used by any goroutine: one lock guards it, no call waits, and nothing runs
// in the background. The functions for keys are pure.
package encoder
