// Package values gets and puts whole values by key in a store of package tier, for protocols whose clients know
// no leases, such as lm:// and Redis's.
//
// A [Values] is what one connection uses: [Values.Get] pins a value in memory while it is used, and waits until it was
// fetched from a lower level. [Values.Put] reserves room and reads the bytes straight into it. A [Holder] has
// the pins and reservations: a tier.StoreLease, or what the daemon charges a client for.
//
// # Values that change
//
// An object of package tier never changes, and the clients of these protocols may store other bytes under a key. Put
// compares: equal bytes leave what is there. Another description (size or note), in any level, or other bytes in
// memory, replace the object: it is deleted from all levels and stored anew. What somebody reads for longer than a
// second can't be deleted, and stays. Bytes of a lower level that memory does not have are not compared, since that would take a read
// of them for each Put: keys are hashes of what the bytes were made from, so bytes that differ under a description that
// is equal do not happen in practice.
//
// # Concurrency
//
// One goroutine at a time uses a Values, and any number of them one store.
package values
