// Package values gets and puts whole values by key in a store of package tier, for protocols whose clients
// know no leases, such as lm:// and Redis's.
//
// A [Values] is what one connection uses: [Values.Get] pins a value in memory while it is used, and waits
// until it was fetched from a lower level. [Values.Put] reserves room and reads the bytes straight into it. A
// [Holder] has the pins and reservations: a tier.StoreLease, or what the daemon charges a client for.
//
// # Values that change
//
// An object of package tier never changes, and the clients of these protocols may store other bytes under a
// key. Put compares: equal bytes leave what is there. Another description (size or note) or other bytes, in
// any level, replace the object: when all new bytes have come, it is deleted from all levels, and they are
// stored. That takes room for the new bytes twice. What somebody reads for longer than a second can't be
// deleted, and stays. What only a lower level has is fetched to be compared; if that fails, it is not
// compared.
//
// # Concurrency
//
// One goroutine at a time uses a Values, and any number of them one store.
package values
