// Package promise keeps what a daemon promised its clients, whatever they speak: sessions, the processes that they belong to, and
// the leases that sessions have in a tier.Store.
//
// A [Book] has it all. A connection first enters the book for its process ([Book.Enter]), and then joins a session
// ([Book.Join]). A session has one connection at a time: the next one of the same process takes it over. What the
// session is promised does not depend on connections. It ends by the session's own word, with its time, and with the process.
//
// The truth is in the table of leases beside the segment. The lease of the name "b" of session "a" stands there as "a/b", with
// the owner "PID START SESSION LABEL", so that the next daemon's book finds it. It releases what belongs to dead processes at
// once, and keeps the rest for a grace time, until the session is joined again. After that the pins are gone; reservations
// stay for a while, since the process may be writing. Of a process that can't be identified nothing
// stays.
//
// Everything is done to the store first, and then to the book: a kill between the two leaves no promise without a record.
//
// # Locks
//
// A session has a lock, which a request holds from its begin to its end, so that requests of a session are in order, and
// who takes a session over waits for the request before. The lock of the book guards the rest, for moments, and is taken
// inside that of a session, never around it.
package promise
