// Package ringcache is the front page of a library that shares the inputs of
// inference engines between processes through shared memory. It contains no code;
// this page names the packages and where to start.
//
// An engine such as vLLM receives images, audio and video as tensors of many
// megabytes. This library keeps them once, in a segment under /dev/shm that all
// processes of the machine map: a frontend in Go writes an item in place and sends
// a handle of 100 to 200 bytes, and unmodified vLLM workers (0.11.0 to 0.33.0)
// read the item where it lies. The bytes are those of vLLM's own shared-memory
// object store, in both directions.
//
// # Where to start
//
// Take the highest package that does your job; it uses those below it.
//
//   - A frontend of whole vLLM engines (start, requests, streams, restart):
//     package engine, with engine/zmq as its transport. The program
//     examples/frontend is an HTTP server over it.
//   - A server with an engine connection of its own that wants vLLM's cache of
//     multimodal items: package mmcache, as the example below shows. The program
//     examples/customserver is built on it.
//   - Processes of your own that share tensors, with or without vLLM: package
//     objstore. docs/without-vllm.md describes what to decide.
//   - Processes of your own that share bytes: package shmstore.
//   - Outputs of encoders, chunks or anything else that should outlive the engine that
//     computed it, in memory, on disk and in Redis: package tier. The books of an
//     engine's encoder cache, keys and files of outputs: package encoder.
//   - One cache of encoder outputs or of KV for several unmodified vLLM engines: the command
//     ringcache serve, docs/encoder.md and docs/kv.md. Inside a program of your own: package daemon; a client in Go:
//     package daemon/client.
//   - A proxy or router that mirrors an engine's cache: package lrusync.
//   - Chunks of KV caches, by the keys of LMCache or vLLM: package kv. Storing the KV of an engine's paged buffers and
//     bringing it back, in place of LMCache's in-process engine or beside one: package lmcache/engine.
//   - Who holds which chunks, for routers: package kv/directory, docs/directory.md.
//   - Chunks of KV caches that are not a prefix of a prompt: package blend, docs/blend.md.
//   - Values for clients of LMCache's lm:// or of Redis: packages lmcache/lm and lmcache/resp,
//     docs/lm.md and docs/resp.md.
//   - The items of LLaVA and Qwen2-VL from photos, in plain Go: package preprocess.
//   - Keys for media that equal vLLM's: package mmhash.
//   - Reading or writing vLLM's tensors: package serde; its messages: package
//     serde/enginecore.
//   - The allocators alone, over any bytes: package shmring.
//   - Tests for a ring, a store, a cache or a protocol of your own: the packages below
//     fuzz, and docs/test-your-own-ring.md.
//   - Any other language: the command ringcache agent, driven by JSON lines
//     (docs/agent.md), and the Python package in python.
//   - Operating segments: the commands of docs/commands.md, which look (ls, inspect, map, top, doctor), those that
//     check bytes and sweep up after a kill (ringcache check and ringcache sweep, docs/operations.md), and
//     ringcache tier for objects in tiers. Package inspect looks for a program of your own.
//
// # Floors
//
// From the bottom up, a package imports only packages below it:
//
//	pycompat         what differs between releases of vLLM; names; Python's lock
//	shmring          the allocators: a ring and a pool of chunks, over any bytes
//	shmring/memory   huge pages, NUMA nodes, locked memory
//	shmring/segment  segments in shared memory: create, attach, adopt, sweep
//	mmhash           identity of media
//	serde            tensors and items as bytes
//	serde/enginecore the messages between a frontend and an engine
//	shmstore         payloads by key in a segment that survives a kill
//	objstore         vLLM's objects on it: handles, signatures, counts, requests
//	objstore/check   the bytes of a segment, while it is in use
//	lrusync          vLLM's mirrored LRU caches, in lockstep
//	tier             objects by key in levels; the store over them
//	tier/memory      a level in shared memory: leases, survival of a kill
//	tier/disk        a level in a folder
//	tier/folder      a level in a folder that several hosts share
//	tier/redis       a level in a Redis or Valkey server
//	tier/s3          a level in a bucket of a store that speaks S3
//	inspect          segments seen from outside
//	encoder          the encoder cache: manager, keys, the tree of vLLM's connector
//	encoder/warm     filling a cache of outputs through a running engine
//	kv               chunks of KV caches: hashes, keys, identity, longest prefix
//	lmcache/config   the configuration of LMCache, and what it means here
//	kv/flow          what of a request is loaded and saved in a step of an engine
//	kv/paged         copies between paged KV buffers and chunks
//	lmcache/engine   the KV of requests in levels, whole and layer by layer
//	lmcache/lookup   the look-up of LMCache's schedulers and workers
//	lmcache/lm, lmcache/resp
//	                 servers of whole values: lm://, Redis's protocol
//	kv/directory     who holds which chunks
//	lmcache/controller, lmcache/coordinator, lmcache/kvevents
//	                 the wires by which engines report that: LMCache's, and the KV events of vLLM
//	blend/rope       keys of attention at other positions
//	blend            chunks of KV at other places of a prompt: finding, moving, selecting
//	blend/transformer a small model that is blended, to check it
//	blend/chunks     such chunks in the levels of a store
//	mmcache          the embeddable cache
//	engine           the frontend of a whole engine
//	preprocess       photos to items of a model
//	daemon/wire      the daemon's protocol
//	daemon/client    its client
//	daemon           what ringcache serve runs
//	daemon/doctor    what is wrong with a machine
//	agent            stores, rings, caches, tiers, hashes and messages by JSON lines
//	fuzz             tests for rings, stores, caches and levels of any make
//
// Everything up to engine builds without cgo for linux/amd64 and linux/arm64 and
// compiles on other systems, where making or attaching a segment returns an error.
//
// # Terms
//
// A segment is a file in shared memory. A chunk is a run of its bytes with a header.
// A handle names an object: the address and the monotonic id of its chunk, and from
// vLLM 0.32.0 on a signature. A lease keeps an object for a request. A generation is
// the wire format of a range of vLLM releases. docs/format.md describes every byte.
package ringcache
