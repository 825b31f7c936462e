// Package tiertest tests levels of package tier, of any make: memory, disk, Redis, S3, and your own. It tests
// every promise of tier.Level and tier.MemoryLevel: bytes of all sizes and ways, batches, odd keys,
// descriptions, contexts, eviction and its order, leases, damage, closing, opening again, kills, and random
// calls of many goroutines.
//
// A level needs a function that opens an empty one. Hooks of [Options] reach it behind its back; what a
// level has no hook for is left out, and the log names it. This is a complete test file:
//
//	package mylevel_test
//
//	import (
//		"testing"
//
//		"github.com/ringcache/ringcache/fuzz/tiertest"
//		"github.com/ringcache/ringcache/tier"
//
//		"example.com/mylevel"
//	)
//
//	func TestLevel(t *testing.T) {
//		tiertest.Level(t, tiertest.Options{
//			Open: func(t testing.TB, capacity int64) tier.Level {
//				l, err := mylevel.Open(t.TempDir(), capacity)
//				if err != nil {
//					t.Fatal(err)
//				}
//				return l
//			},
//			Reopen: func(t testing.TB, closed tier.Level) tier.Level {
//				old := closed.(*mylevel.Level)
//				l, err := mylevel.Open(old.Dir(), old.Usage().Capacity)
//				if err != nil {
//					t.Fatal(err)
//				}
//				return l
//			},
//		})
//	}
//
// [Memory] takes the same options, for a level with leases.
//
// The tests hold for any correct level, whatever it adds to objects and in whichever order it evicts what may
// go. A level that breaks a promise on purpose names the test in [Options].Without.
//
// For tests of what stands on levels there are [Map], a level on the heap, and [Fault], which makes
// any level fail as a test wants.
package tiertest
