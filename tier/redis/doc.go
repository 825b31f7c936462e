// Package redis keeps objects in a Redis or Valkey server: a single one, one behind Sentinels, or a
// cluster.
//
// [Open] makes a [Level], which is a [tier.Level]. What is where is decided by a [Layout]: [Objects] is this
// library's own, with a checksum over every byte; [LMCache] and [RESP] are those of LMCache's two connectors,
// for servers that are shared with it.
//
// # The server
//
// The server decides what it evicts: give it maxmemory, and maxmemory-policy allkeys-lru or allkeys-lfu. With
// noeviction, which is the default, a full server answers tier.ErrFull. Objects have no order among the
// server's keys, so a parent may go before its children. Redis counts a look at an object's description as a
// use, so Stat counts as a use.
//
// The level needs GET, GETRANGE, STRLEN, SET, UNLINK, EXISTS, SCAN, WATCH, UNWATCH, MULTI, EXEC and PING, in
// a cluster CLUSTER SLOTS and ASKING, and of a Sentinel SENTINEL GET-MASTER-ADDR-BY-NAME. As an ACL: on
// >PASSWORD ~ringcache:* +@read +@write +@transaction +@connection +cluster|slots.
//
// # Failures
//
// Every round trip has a time limit. A server that misses it, or whose connection breaks twice, is down: all
// calls fail with tier.ErrUnavailable at once, while one goroutine sends PING every Options.Retry, until the
// server answers. Each server of a cluster has its own such state. A call may end after its context by no
// more than the time limit.
//
// A kill of the client in the midst of a Put leaves an object whole, or not there. In the layout LMCache it may leave
// bytes without metadata: they are no object, and take room until the object is put again or the server evicts them.
//
// A value that isn't what was put is a miss and tier.ErrCorrupt, and Stat, Get and Put remove it, unless
// another client has replaced it meanwhile. LMCache's layouts have no prefix and no mark, so they see the
// keys of all programs that use the server: there a value that may be another program's is a miss, and stays.
// List removes nothing.
//
// A server is not trusted with the memory or the life of the process. What it announces is checked against
// what it was asked for before anything is allocated: the length of a string, the elements and the nesting of
// arrays, the length of a line. An answer that can't be one breaks the connection, and the server is down
// like one that does not answer. RESP2 is spoken, so values of RESP3 are such answers, too. A page of
// SCAN has at most 16384 elements, a key in it 64 KiB, and all of it 4 MiB; CLUSTER SLOTS 16 MiB. Memory for
// an object that the server describes, of at most 512 MiB, is made when the object is read: by Into, which
// can refuse it, or within Options.MaxBytesInFlight.
//
// The client is github.com/redis/go-redis/v9. This package gives it connections that report their own
// failures, so that it has nothing to log, and that check what comes; its process-wide logger stays as it is.
//
// See docs/decisions.md, "Redis is spoken by go-redis, over guarded connections of our own".
package redis
