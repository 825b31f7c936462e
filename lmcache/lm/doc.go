// Package lm speaks lm://, the protocol of LMCache's own server (lmcache_server, of releases up to 0.5.6;
// 0.5.7 has dropped it), on both sides: a [Server] over the levels of package tier, and a [Client].
//
// # The wire
//
// A request is a header, and behind that of [Put] the bytes of the value. A reply is a header, and behind
// that to [Get] the bytes. A header is four-byte integers and, in a request, a key of 150 bytes with spaces
// behind it. There have been three forms of it, [Located], [Typed] and [Untyped]; nothing announces the form,
// and a server finds it out from the first request of a connection: where the key begins in one form, there
// is a small number in the others. A client must be told.
//
// Put has no reply. A client therefore goes on behind a value whatever became of it.
//
// # Keys and values
//
// A value is an object of package tier in the space [Space], whose name is the engine's key in one spelling
// ([Form.KeyOf]), and whose note is LMCache's RemoteMetadata: length, format, dtype and shape. So the
// description of a value is wherever its bytes are, and outlives the server with them. Values of Untyped have
// none, and a space of their own.
//
// A value can be stored anew with other bytes or another description, as with LMCache's server; package
// internal/values describes what that means in levels.
//
// # The server
//
// A value is sent from where it is pinned in memory, in one write with its header, and received straight into
// the room that was reserved for it. What only lower levels have is fetched first. The server differs from
// LMCache's own one where that leaves clients waiting, or keeps what is wrong:
//
//   - [List] is answered by [Fail]. LMCache's server leaves the client waiting.
//   - A value that was cut short is not stored. LMCache's server has the key afterwards, and closes the
//     connection of who asks for it.
//   - A negative length ends the connection. LMCache's server stores such a value.
//   - Memory is bounded: values without room are received and dropped, and old values are evicted, or found
//     in lower levels. LMCache's server keeps everything.
//   - A value that is being sent to somebody for longer than a second is not replaced: the new one is
//     dropped.
//   - Keys of releases up to 0.3.5, FMT@MODEL@WORLD@WORKER@HASH, are taken in headers of today's form, too.
//
// What can't be read ends the connection without a reply, as with LMCache's server. A client may be silent
// between requests for as long as it likes, and costs a goroutine; within a request it has
// [Options].MoveTime.
//
// # The client
//
// A [Client] has one connection, and connects again after a failure. LMCache's server does not close a
// connection in order, nor bound what it announces: [ClientOptions].MaxValue does.
//
// # Errors and concurrency
//
// What is refused wraps fs.ErrInvalid. A Server and a Client serve any number of goroutines; a [Store] is one
// connection's.
package lm
