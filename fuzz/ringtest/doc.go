// Package ringtest tests allocators of chunks over a []byte, such as vLLM's ring: your own, or
// those of this module. Put your ring behind [Ring], and call
//
//   - [Check] in a test: random sequences of operations, drawn to the borders;
//   - [Fuzz] in a fuzz target, [Machine] with rapid: the same, from other choices;
//   - [Exhaust]: every history up to a few operations on a ring of a few dozen bytes;
//   - [Crash]: the memory after each of the ring's stores, as a crash there would leave it.
//
// Each operation is followed by the checks of [Invariants]. All of them hold for any correct ring,
// wherever it places chunks, but for those that [Options] has to switch on. What fails is
// minimized and printed as lines of the agent's protocol (docs/agent.md); [Replay] performs such
// lines again.
package ringtest
