// Command soak loads the whole core with many processes for minutes to days, kills them at
// random instants, and reports whether anything was lost, became wrong, or grew.
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
// In the first five a writer sends requests with handles, and readers, in Go and Python,
// compare every byte of what the handles name with what the key and a nonce demand. The
// supervisor stands for the engine between them. It keeps a ledger of what was published and
// what is in flight (ledger.go), which outlives every child, and judges each adoption by it.
//
// A child is this program with a hidden sub-command. It speaks lines of JSON (message.go) on
// its standard streams. Nothing outlives the supervisor, however it ends: the kernel kills its
// children, and a cleaner process (clean.go) then removes their segments.
package main
