// Package lrutest tests an LRU cache with sizes, and a mirrored pair of such caches, of any make.
//
//	func TestMine(t *testing.T) {
//		lrutest.Check(t, func(capacity float64) lrutest.Cache { return mine{New(int64(capacity))} }, lrutest.Options{})
//	}
//
// [Check] performs random operations that are drawn to the borders, [Fuzz] those of Go's fuzzer,
// [Machine] those of rapid, and [Exhaust] every history of a few operations on a tiny cache. After
// each operation the invariants of [Invariants] have to hold. Leave out those that your cache
// does not promise by their names, see [Options]. What fails is minimized and printed as lines of
// the agent's protocol (docs/agent.md); [Replay] performs such lines again.
//
// [CheckPair], [FuzzPair], [MachinePair] and [ReplayPair] do the same to a sender and a receiver that mirror
// each other. The test owns the link between them: it delivers, holds back, reorders, loses and
// refuses messages, and restarts the receiver. The invariants are those of [PairInvariants]. A
// failure is printed as lines of these operations:
//
//	link.new      capacity
//	link.send     keys, lack (indexes without data at hand), fate: now (behind all that wait),
//	              wait (for a deliver), overtake (those that wait), lose, refuse
//	link.deliver  nth of the messages that wait
//	link.clear    (both ends, by a message), fate: now, wait, refuse
//	link.restart  (an empty receiver)
//
// Nothing here is safe for concurrent use.
package lrutest
