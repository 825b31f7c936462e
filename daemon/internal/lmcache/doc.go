// Package lmcache serves LMCache's multiprocess protocol, so that the daemon stands in place of `lmcache
// server`: engines keep their connector, LMCache 0.5.6 or 0.5.7, and share KV with each other and with
// engines of the other release. The rules are here, on the messages of package mp, which gRPC or ZMQ carries.
//
// # What a client is
//
// An engine has a client for its scheduler, and one for each worker. Each is a session of the registry, and
// belongs to the process that connected; by TCP that is not known. By gRPC a client is known by the ID that
// LMCache sends with every call. By ZMQ it sends none, and a client is its connection: after another one,
// as after a restart of the daemon, it is another client, without leases. A worker stays
// registered, as it names itself. All that a client may rely on is a lease of its session:
//
//   - A look-up pins what it has found, for the scheduler. Each look-up of a request has a lease of its own, so a chunk
//     that two look-ups have found stays until both are done with it. FreeLookupLocks, a worker's CommitRetrieve and
//     EndSession end pins.
//   - PrepareStore reserves what is not there yet, for the worker, and CommitStore publishes that and nothing else.
//   - PrepareRetrieve pins all chunks of a range, or none, for the worker, until CommitRetrieve.
//
// So leases end by time and with their process, and outlive the daemon, as those of all protocols do. What
// else has to outlive the daemon is in a file beside the segment: the registered workers, and the release of
// each client.
//
// # Two carriers
//
// Both have one table of methods, and the same bounds. What differs is in the files grpc.go, and zmq.go with
// zmq_calls.go: how a call is read, how an answer is written, and what an error is. By ZMQ LMCache's own
// servers do not answer a call that fails, and the client waits for its time limit, of minutes. This server
// answers with its error in place of the operation's name, which the client raises at once, text included.
// Calls of a connection are handled one after the other, but for those that wait.
//
// # Two releases
//
// By gRPC the tokens of a key have the same field and wire type in both releases, and are not the same bytes.
// The release of a client is known by the services that it calls, and is remembered. Tokens of a client of
// which it is not known are read only if their bytes leave no doubt: to read them wrongly is to load the KV of
// another text. By ZMQ the names of fields tell.
//
// See docs/decisions.md, "The release of a client of LMCache is remembered".
//
// # What goes first
//
// A chunk is stored with the chunk in front of it as its parent, so levels evict the end of a prompt before its
// beginning, and nothing in front of what is being stored: of a prompt that does not fit, the head is there. What comes
// behind the first chunk without room is not stored, nor what comes behind one that has gone from a memory without a
// level below. A chunk is stored with what computing it again costs, which grows with its position, and for the salt as
// its tenant: the quotas of the daemon are quotas of salts. The space has the salt, too, so chunks of one salt are not
// found by another.
//
// See docs/decisions.md, "A chunk costs what its layers compute, and more with its position".
//
// # What never happens
//
// No call waits for a disk: a look-up is pending meanwhile, and is asked about again. No call of a worker is
// answered with an error, which would end its engine: there is nothing to store, or nothing to load. A pickle
// is never read. An engine that says nothing is a living one: nothing of it ends by silence but locks whose
// time has passed. A level that hangs holds up a look-up for half a minute: then what memory has is the
// answer.
//
// # Events
//
// A worker may subscribe to which chunks came into memory and which left it. It hands them to its engine, and
// so to routers. What is kept for that is bounded, and nothing is before the first subscription. By ZMQ it
// acknowledges each batch before it gets the next one.
//
// # Who finds nothing
//
// A load that fails may end its request, so a look-up finds nothing for workers that may be unable to load:
// those of 0.5.6 that can't map the segment, and those of which it is not known yet. It is known by
// /proc/PID/maps, or by what they have written to the segment. It finds nothing either if workers disagree
// about their layout, or have groups that differ, or if fewer are registered than the engine has; those of
// another scheduler are not counted, where processes are known.
//
// Engines number their requests alike. The load of a worker ends locks of look-ups with the same request ID
// of its own engine, as far as processes tell, and only those of the objects that it has loaded.
package lmcache
