// Package linear finds histories of concurrent calls that no order of the calls explains. It
// records what several clients called and got, and asks porcupine
// (github.com/anishathalye/porcupine) whether there is an order, each call taking effect at one
// moment between its begin and its end, in which a simple model gives the same results.
//
//	rec := linear.NewRecorder()
//	for range 6 {
//		c := rec.Client() // of one goroutine
//		group.Go(func() {
//			for ... {
//				call := linear.StoreCall{Op: linear.Get, Key: key}
//				err := c.Do(call, func() (any, error) { v, err := store.Get(key); return linear.StoreResult{Value: v}, err })
//			}
//		})
//	}
//	group.Wait()
//	err := linear.Check(linear.Store(linear.StoreOptions{}), rec.History(), linear.Options{})
//
// The models: [Store] for objects by key, [Handles] for what handles lead to, [Allocator] for chunks and
// their ids, [SingleFlight] for a cache in which one client makes what others wait for, [LRU] for a cache
// with an order, such as the receiver of a mirrored pair. Any other porcupine.Model does as well.
//
// A history that nothing explains is written as a page that shows the calls and how far an
// order gets.
//
// Checking takes exponential time in the number of calls that overlap: a few clients and a few
// dozen calls of each, many times, find more than one long history.
package linear
