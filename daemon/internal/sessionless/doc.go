// Package sessionless is the daemon's side of protocols whose clients get and put whole values, and know
// neither sessions nor leases: lm:// and Redis's. The servers of these protocols are in package lmcache; this
// is what each of their connections is to the daemon.
//
// A [Protocol] is one of them. [Protocol.Enter] makes a connection one of the registry, with a session of its
// own under a random name: what the connection pins and reserves is charged to its process, counts in the
// daemon's limits, and ends with the connection, with the process, and by time. A process is known on unix
// sockets; a connection by TCP is a process of its own. [Conn] is then what the server gets and puts values
// with.
//
// Nobody joins such a session again. A daemon that was killed leaves at most the leases of values that were
// being moved, which the next one ends after its grace time.
//
// A turn of the processors is taken for each step that changes the store, and none while bytes are on their
// way.
package sessionless
