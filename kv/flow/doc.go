// Package flow is what the connector of LMCache's in-process engine decides for each request and step of
// vLLM: how many tokens of a request are loaded, which tokens are saved, and in which slots of the paged KV
// buffer they are (lmcache/integration/vllm/vllm_v1_adapter.py of 0.5.6, and of lmcache.inprocess in 0.5.7).
// It has no sockets and no storage: for frontends, routers and schedulers that take the connector's place, or
// tell what it will do.
//
// # The way of a request
//
// A [Scheduler] stands beside the engine's scheduler, which calls it:
//
//   - [Scheduler.Matched] before a request gets blocks: a look-up, and how many tokens can be loaded behind
//     those that the engine has. If all tokens are stored, the last one is computed all the same, since the
//     engine needs its logits. It may be called again until there are blocks; the look-up is made once.
//   - [Scheduler.Allocated] when the request has blocks. Only then is anything loaded.
//   - [Scheduler.Build] for each step, with the requests in it and their new blocks: it returns a [Meta] for
//     each request that loads or saves.
//   - [Scheduler.Finish] when the request has ended, or was aborted.
//
// The worker takes from a Meta what it copies, with [Meta.ToLoad] before the model runs, and with
// [Meta.ToSave] behind.
//
// # Parts
//
// A [Tracker] is what is known of one request from step to step: tokens, blocks, and how many tokens are
// saved. A prefill in parts saves whole chunks only, until its last part. A request that is preempted and
// resumed has new blocks, and its look-up starts again. A [LoadSpec] and a [SaveSpec] say what a step does.
// [AppendSlots] makes slots of blocks. [Request.Named] has the values of media in place of their
// placeholders, as the keys of chunks need them.
//
// # Where it is not LMCache
//
// With some options LMCache's connector ends its engine, or lets it take tokens for loaded that no step
// loads. This package does neither.
//
// See docs/decisions.md, "No load is reported that no step makes".
//
// Transfers to other instances (disaggregated prefill) are not part of it.
//
// # Errors and concurrency
//
// What is refused wraps fs.ErrInvalid: calls that do not fit each other, which LMCache asserts; the request
// is to be finished then, and the other requests of the step go on. [ErrPending] says that a look-up takes
// longer. A Scheduler and a Tracker have one goroutine at a time; the rest are values. Slices of tokens are
// read during the call, and never kept or changed, but for those in a Meta, which belong to who gets it.
package flow
