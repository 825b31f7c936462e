// Package daemon is what `ringcache serve` runs: a [Server] lets engines in other processes share the objects of a
// tier.Store over the protocol of package encoder/wire.
//
// A client is a session, and a session belongs to a process. What a session was promised, its leases with what
// they pin and reserve, stands in the shared segment and survives the daemon: it ends by the client's word, with its time, or with the
// client's process, and neither with a connection nor with the daemon. The next daemon over the same segment
// takes all of it over.
//
// No request waits for a disk, a network or another client. A client that stalls, lies or dies costs itself its connection,
// and others nothing.
package daemon
