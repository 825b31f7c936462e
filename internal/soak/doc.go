// Command soak loads the whole core with many processes for minutes to days, kills them at
// random instants, and fails if an object was lost, a byte was wrong, or the use of a resource grew.
//
//	make soak MINUTES=30
//
// One process supervises. It starts parts, each with processes of its own:
//
//	steady   a pool whose processes are stopped now and then, but never killed: growth
//	         is measured here
//	pool     a pool whose writers and readers are killed; the next writer adopts
//	fifo     a FIFO with counting readers; a dead writer takes the segment with it
//	bytes    a store of opaque payloads, killed and adopted like the pool
//	cache    the same through mmcache, with holds, fan-out and clears
//	mirror   a pair of mirrored caches over a link that loses and reorders requests
//
// In the first five a writer sends requests with handles, and readers, in Go and Python, compare every byte
// of the objects with the content that key and nonce determine. The supervisor stands for the engine between
// them. It keeps a ledger (ledger.go) of the objects that were published and of the requests that readers
// have not read yet. The ledger outlives every child, and each adoption is compared with it.
//
// A child is this program with a hidden sub-command. It speaks lines of JSON (message.go) on
// its standard streams. When the supervisor ends, even by SIGKILL, the kernel kills its
// children, and a cleaner process (clean.go) then removes their segments.
package main
