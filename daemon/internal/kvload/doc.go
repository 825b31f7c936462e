// Package kvload is the load of engines that have LMCache's multiprocess connector, for tests and benchmarks of
// servers of its protocol: ours, and LMCache's own.
//
// An Engine calls as LMCache 0.5.6 or 0.5.7 does: a connection of the scheduler and one of each worker, a heartbeat,
// calls that wait for a server that is away, bytes in shared memory or within messages. The bytes of a chunk follow
// from all that identifies it, so a load verifies every byte, whoever has stored it.
//
// An error of a call is the server's answer, and is what a test judges; Lost tells it from the end of a connection,
// which a kill of the server brings about.
package kvload
