// Package resp serves objects of a [tier.Store] to clients of Redis: LMCache's native RESP client with its
// RESP adapter, LMCache's Redis connector over redis-py, redis-cli, and others that speak RESP2 or RESP3.
//
// A key of a client is the name of an object in one space, and its value is the bytes: [Options].Space. Keys
// have 1 to 1024 bytes, none of which is zero. Values have at most 512 MiB, do not expire by a time that
// clients choose, and are evicted like all objects.
//
// # Commands
//
// AUTH, HELLO 2 and 3, CLIENT (SETINFO, SETNAME, GETNAME, ID and others), PING, ECHO, SELECT 0, EXISTS, GET,
// MGET, SET, STRLEN, DEL, UNLINK, FLUSHDB and FLUSHALL if [Options].Flush allows them, INFO, COMMAND, TIME,
// RESET and QUIT. Anything else is an error, and the connection goes on. So are options of SET: nothing would
// keep to a time to live. A value of several megabytes is read from the socket into its place in memory, and
// written from there.
//
// # LMCache's native client
//
// The native client of lmcache 0.5.6 and 0.5.7 reads as many bytes as the answer it hopes for has, and
// compares them. An answer of another length leaves its connection out of step, for ever, and a nil makes it
// wait for ever. It asks EXISTS before each GET, often on another connection. So:
//
//   - EXISTS that answers yes has the object in memory, and pins it for [Options].PinTime, within bounds. The
//     next GET of it ends the pin.
//   - A connection that has sent nothing but AUTH, EXISTS, GET, SET and DEL is taken for the native client,
//     and gets errors of the length that it reads: "-NO" to SET, and "-N" to DEL, where another client gets a
//     sentence.
//   - If that connection has asked EXISTS, and a GET is about an object that EXISTS has affirmed and that is
//     gone all the same, the answer is an error as long as the header of the value would be. The client notes
//     a failed key, and goes on in step. Other connections get a nil.
//
// A value of another size than the client expects puts it out of step all the same: the server does not know
// what a client expects. LMCache stores one size under one model, and its keys contain the model.
//
// # Concurrency and memory
//
// A connection is served by one goroutine, one command at a time; pipelined commands are answered in order. A
// connection takes 32 KiB of buffers, and up to 128 KiB more while it sends a command with many keys. Values
// are never on the heap, but for 64 KiB with which SET compares. Whoever does not go on to read or write
// within a command for 30 s ([Options].Patience) is disconnected, as is who takes more than 4 minutes for
// one.
//
// SET of a key that has the same bytes already changes nothing. Other bytes take the place of the old ones
// when all of them have come. A SET that breaks off changes nothing. SETs of one key follow each other.
//
// # Errors
//
// Serve returns errors of its listener. What single clients do wrong is answered to them, and counted; the
// log has one line a minute for each cause.
//
// See docs/decisions.md, "RESP is read by hand".
package resp
