// Package wire is the protocol between ringcache's daemon and its clients: the connectors of engines, which
// are written in Python, and Go programs. docs/daemon.md describes it byte by byte.
//
// A client connects to a unix socket and sends requests; the daemon answers each of them, in order. A frame
// is the length of its body, 4 bytes, little-endian, and the body, a MessagePack map with names as keys.
// Bytes of objects are not in frames: the client maps the segment that the answer to Hello names, and reads
// and writes at the offsets that it is given.
//
// A session is what a client is known by: a random text that it chooses. It says [Hello] with it first on
// each connection, and again, with the same session, when the connection was lost or the daemon has been
// restarted: its leases, with what they pin and reserve, are still there. A session ends with its process.
//
// A lease is a name inside a session. [Pin] and [Reserve] make one. It ends by [Release], with its time, or
// with the session. What has been reserved ends ten minutes after that time, since the client may be writing
// to it. Until then a Reserve of the same, for the same lease, keeps it for longer. A client begins no write
// to it after the time that it asked for, by a clock that nobody sets, such as that of [time.Now]: the room
// is somebody else's later, and the daemon can't stop it.
//
// No request waits for a disk or a network. What that would take is answered by [StatusPending]: ask again.
//
// Peers of different age get on: a key that one of them does not know is skipped, an operation that the
// daemon does not know is refused by [KindUnsupported], and what changes the meaning of messages is a
// feature, which both name in Hello.
//
// The structs [Request] and [Reply], with those in them, are the table of all fields: the codec is generated from it.
//
// Package client has a client in Go.
//
// See docs/decisions.md, "What a peer does not know is skipped; new meaning is a feature".
package wire
