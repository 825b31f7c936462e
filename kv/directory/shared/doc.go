// Package shared keeps what a directory knows in a Redis or Valkey server, so that directories on several
// hosts know the same, and one that begins knows what the others do.
//
// [Open] loads what is known into a directory.Directory, and [State.Run] tells others what changes there, and
// applies what they tell, until its context ends. Reports and look-ups are answered by the Directory alone,
// from memory: nothing waits for Redis.
//
// # What is in Redis
//
// All keys begin with one prefix: "directory:", the prefix of the URL, and the name of the face.
//
//	epoch       a random text; another one means that everything is to be told again
//	count       the number of the last change that was told
//	log         a stream of 16,384 entries or a few more; entry N has the identifier N-0
//	workers     a set of the identifiers of all workers
//	worker:ID   a hash: at (the last entry about the worker), by (the directory that has told it), state
//	chunks:N:ID a set of the chunks at location N of a worker: 8 bytes of a number, else 16
//	lease:D     is there while directory D lives, for 15 seconds
//
// A change is applied to the records and appended to the log by one script, which refuses a change of a
// worker about which the log has something that its sender has not seen. So what records say is what the
// entries up to "at" say.
//
// # Who speaks for a worker
//
// The directory to which a worker has reported last. Others learn of it by the log, about 50 ms later; when
// the worker comes to one of them, that one goes on with its numbers. If two directories have news of one
// worker at a time, neither knows everything: the worker is told anew in full, as one that has lost reports.
// A directory drops its own workers without a heartbeat, by its own clock. The workers of a directory whose
// lease has ended, by the clock of Redis, are dropped when none has come elsewhere for [Options].Timeout.
//
// # Failures
//
// While Redis does not answer, changes are kept for it, up to a million keys; a worker with more is told again
// in full. A log that was cut before it was read makes a directory load everything again. A server without
// the epoch, or another process, is told everything again by those who know it. What Redis has is checked and
// bounded like what a peer sends; what can't be read is counted and skipped.
//
// Redis 5 or newer is enough, or Valkey; not a cluster. Give it room, and maxmemory-policy noeviction. As an ACL: on
// >PASSWORD ~directory:* +@read +@write +@scripting +@connection +info.
//
// See docs/decisions.md, "Directories share records and a log in Redis".
package shared
