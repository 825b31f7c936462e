// Package engine is the frontend (P0) of an unmodified vLLM engine: it starts or
// awaits an EngineCore, sends it requests, and gives each its stream of tokens.
// Images travel through a cache of package mmcache, whose leases follow the
// engine's own answers.
//
// Tokenizers, chat templates and the prompts of models are not here: prompts are
// token ids, and so is what comes back.
//
// # The way of a request
//
//	cache, err := mmcache.Open(...)         // the segment, before the engine starts
//	eng, err := engine.New(engine.Options{Transport: zmq.Transport{}, Cache: cache, Model: model, Command: vllm})
//	err = eng.Start(ctx)                    // returns when the engine is ready
//
//	items, err := cache.Begin(ctx, id, mmcache.Want{Key: key, Bytes: limit})
//	defer items.Rollback()
//	_, err = items.Item(ctx, key, produce)  // decodes into shared memory, once per key
//	s, err := eng.Generate(ctx, engine.Request{ID: id, Prompt: tokens, Items: items,
//		Placeholders: []engine.Placeholder{{Offset: 2, Length: 16}}})
//	for out, err := range s.Outputs() { ... }
//
// The end of ctx, or of the loop, before the last token aborts the request.
//
// # What is never sent
//
// A wrong request can end an engine with everything that it runs: a handle that
// workers can't use, a token outside of the vocabulary, a parameter of the wrong
// type; an item with the wrong number of rows gives wrong tokens without an
// error. So each request is verified before it is sent, down to the bytes that
// workers will find in shared memory (see [Model]); what does not pass is an
// [ErrRefused] for its caller, and nothing reaches the engine.
//
// # Lifetimes
//
// Generate commits the request to the cache. Its items stay until the engine
// reports it as finished. If it is aborted they stay until a fence has passed: a
// call that every worker answers behind everything sent before. A request for n
// sequences is sent as n children, one after the other, each of which counts as a
// reader; if it is given up on the way, those that were sent are aborted.
//
// # What is kept
//
// Outputs that nobody has read yet are kept, each as a copy of its own, at most
// max_tokens for each child: an engine that sends more than it was asked for, or goes
// on with a child that had finished, ends the request with a [RequestError], and the
// client aborts it.
//
// # The engine's end
//
// An engine that dies, exits, disconnects or goes deaf ends every stream and call
// with an [ErrDead]. Start then starts the next one; the items in shared memory
// are still there.
//
// # States
//
// A client is open, closing or closed. Its session with an engine is starting,
// running, asleep, leaving, gone or over. A stream is open, ended or settled: the
// first cause ends it, and what the request holds is given back when nobody sends for
// it any more. The file state.go has the tables.
//
// # Concurrency
//
// A Client may be used by any number of goroutines; a Stream has one reader. The
// client's goroutines end with Close, except those in a producer that goes on although
// its context has ended: Close reports them.
package engine
