// Package kv is what a server of KV caches computes and asks, without sockets and storage: which chunks a
// request has, what their keys are, whether the bytes under a key fit an engine, and how much of a request is
// there. It knows the rules of LMCache (0.5.6 and 0.5.7rc2) and the block hashes of vLLM.
//
// # Chunks
//
// A request's tokens are cut into chunks of one length. The hash of a chunk covers its tokens and, through
// the hash in front, all tokens before them. A [Scheme] says how; its zero value is LMCache's multiprocess
// server with its defaults. A [Hasher] of a scheme makes a [Chain] for each request. [Chain.Set] takes the
// tokens as LMCache 0.5.7 sends them, packed, [Chain.SetTokens] as 0.5.6 does. A request that comes again
// with more tokens costs a comparison of those that are known, and hashes the rest. Nothing is allocated for
// single chunks. [Chain.AppendBlock] is for blocks of vLLM with extra keys: media, LoRA, salt.
//
// A [TokenDatabase] does it as LMCache's in-process engine: it returns the chunks of a request with their
// [EngineKey], whole ones and perhaps a tail, or the segments between separators that LMCache blends.
// [ParseTags] reads the tags of a request's options, which are part of such keys. [Hasher.Agree] finds out
// whether a peer hashes otherwise, and with which PYTHONHASHSEED: such peers never find what the other one
// stores, and nothing else tells them.
//
// Media have no tokens of their own. [AppendPlaceholders] makes the values that LMCache's connector puts in
// their place.
//
// # Identity and keys
//
// Two engines may share bytes if everything is equal that decides what the bytes are. A [Layout] is that:
// model, engine, number of workers, chunk, and of each [Group] of layers the geometry and dtype.
// [Layout.Space] makes the Space of a tier.Key of it, with the worker, the group and the cache_salt. The Name
// of the key is the hash of the chunk, and its parent the chunk in front. Options of a request are no part of
// the identity.
//
// See docs/decisions.md, "Options of a request are not part of an object's identity".
//
// [ObjectKey] and [EngineKey] are LMCache's own names of chunks, for stores that LMCache reads and writes
// itself. Each is written in one way, and a parser takes that way only: LMCache's parsers take more, and then
// two texts are one key.
//
// # Cost
//
// [Layout.Cost] estimates what computing a chunk again takes, for who evicts by costs: the more, the further
// behind the chunk is.
//
// # What is there
//
// [LongestPrefix] asks which chunks are there, of every worker and group, and returns how many from the first
// on can be loaded. The server locks them.
//
// # Errors and concurrency
//
// What is refused wraps fs.ErrInvalid, and the text names what is wrong. Everything has a bound; tokens have
// that of the message they came in. A Hasher serves any number of goroutines, a Chain one at a time, and the
// rest are values.
package kv
