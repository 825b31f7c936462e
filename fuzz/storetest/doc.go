// Package storetest tests stores of objects by key, of any make: that what somebody may still
// need stays with its bytes, that no handle leads to the bytes of another object, that counts
// are right, and that nothing stays once everything has ended.
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
// A store may place objects as it likes, and evict any that nobody needs. With [Options].Release it
// has to do exactly what vLLM's own store does.
package storetest
