// Package daemon is what `ringcache serve` runs. [Run] does all of it, as a [Config] says: it opens the
// levels, serves, and ends in good order. [Sources] is where a Config comes from.
//
// A [Server] is the part that serves: it lets engines in other processes share the objects of a
// tier.Store over the protocol of package daemon/wire, which docs/daemon.md describes.
//
// # Leases
//
// A client is a session, and a session belongs to the process that connected. The leases of a
// session, with what they pin and reserve, stand in the shared segment and survive the daemon: the memory
// level owns them. A lease ends by the client's word, with its time, or with the client's process; not with a
// connection, and not with the daemon. Reservations end a while after it, since the client may be writing.
// The next daemon over the same segment takes all of it over, and keeps it for a grace time until the client
// comes back.
//
// Sessions, the names of their leases and the limits of processes are in one registry, package
// daemon/internal/registry, which Run opens and which all protocols share. A Server is one protocol, with the
// name "ringcache" there.
//
// # Who harms whom
//
// No request waits for a disk, a network or another client: what takes longer goes on in the background, and
// the client asks again. A client that stalls, lies or dies costs itself its connection, and others nothing:
// what a process may have is limited by [Limits], and is the less, the more others have. Requests are handled
// in turns by process, large ones in pieces, so that who asks for much waits for himself. The memory of large
// requests and replies comes from budgets, of which a process has no more than it leaves to others; small
// ones always have room. Processes of another user are refused. Who is let in can map the segment, and so can
// damage it.
//
// # Concurrency
//
// The methods of a Server may be called from any goroutine. Each connection has a goroutine, and its requests
// are answered in order.
package daemon
