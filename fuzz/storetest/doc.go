// Package storetest tests stores of objects by key, of any implementation: an object that a request or
// reader may still need keeps its bytes, no handle leads to the bytes of another object, counts
// are right, and all room is free once everything has ended.
//
// Put your store behind [Store], and behind those of the small interfaces [Requester],
// [Evicter], [Clearer], [Fencer], [Resetter], [Adopter], [Freer], [Toucher] and [Checker] that it has
// something for. Then
//
//	func TestStore(t *testing.T) { storetest.Check(t, newStore, storetest.Options{}) }
//	func TestHistories(t *testing.T) { storetest.Exhaust(t, newStore, storetest.Options{}) }
//	func FuzzStore(f *testing.F) { storetest.Fuzz(f, newStore, storetest.Options{}) }
//
// A failure shows which invariant is broken, and the fewest operations that break it, as lines
// of the agent's protocol (docs/agent.md).
//
// A store may place objects as it likes, and evict any that is not needed. With [Options].Release it
// has to do exactly what vLLM's own store does.
package storetest
