// Package registry has the sessions of a daemon's clients, the processes that they belong to, and the
// names of their leases, for all protocols that the daemon speaks.
//
// A connection first enters the [Registry] for its process ([Registry.Enter]), and then joins a session
// of its protocol ([Registry.Join]). A session has one connection at a time: the next one of the same
// process takes it over. The leases of a session do not depend on connections. They end by the
// session's own word, with its time, and with the process.
//
// # Who owns what
//
// The memory level owns leases: which objects they have, where, and until when ([tier.Lease]). It ends
// them by time. A session owns names of leases, and the charge for what they have, by which the registry
// limits each process: a lease is its own [tier.Account]. There is no second record that could differ
// from the level's.
//
// The lease of the name "c" of session "b" of protocol "a" has the ID "a/b/c" in the level, and the
// owner "PID START LABEL". Both stand in the table beside the segment, so that the next daemon's
// registry finds whose it is. It releases what belongs to dead processes at once. It keeps the rest for
// a grace time, until a connection of the same protocol joins the session again. After that the pins are
// gone; reservations stay for a while, since the process may be writing. Of a process that can't be
// identified nothing stays.
//
// Everything is done to the store first, and then to the registry: a kill between the two leaves no
// lease without a record.
//
// # Locks
//
// A session has a lock that a request holds from its begin to its end, so that requests of a session are
// in order, and whoever takes a session over waits for the request before. Inside it come the locks of
// the store and its levels, and innermost the lock of the registry, which guards all fields for moments:
// the level calls accounts with its own lock held, so the store is never called with the registry's.
package registry
