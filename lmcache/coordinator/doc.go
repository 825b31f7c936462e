// Package coordinator is the HTTP of LMCache's coordinator (0.5.7) about who holds what, on package
// directory: servers of LMCache's multiprocess mode register and send their events unchanged, and clients
// ask.
//
// [Server.Handler] serves POST /events, POST /directory/lookup and /directory/blend-lookup, GET
// /directory/keys and /directory/stats, POST and GET /instances, PUT /instances/ID/heartbeat, DELETE
// /instances/ID, PUT /config/chunk-size and GET /healthz. Fragments are not indexed: /directory/blend-lookup
// answers as LMCache's does without --enable-blend-lookup. Quotas, pins and prefetches are not served; what
// is not served answers 404.
//
// POST /directory/longest is ours, and [Server.Longest] is the same in Go: which instances hold the longest
// prefix of tokens, with how many chunks at which location. It costs what the prompt costs, however many
// instances there are.
//
// A [Reporter] is the other side: it tells a coordinator what a server has in memory. ringcache serve has one.
//
// # What is kept
//
// Who holds an object stands in the directory, under the instance, and under "(shared)" for storage that all
// reach. The rest of what LMCache's coordinator tells (sizes, tokens, uses) is kept for [Options].MaxObjects
// objects, about 500 bytes each and the tokens, and eight places for each on average; more are counted, not
// taken. What an instance that has gone holds on a disk is told as LMCache does, but not by Longest. Nothing
// outlives the process.
//
// # Concurrency and errors
//
// A Server serves any number of requests. Eight at a time have large bodies in memory, of 16 MiB at most, and
// eight large answers; what is small, such as a heartbeat, waits for none of them. Who makes the Server calls
// [Server.Expire], which also forgets instances that never registered and have sent nothing for ten minutes.
// What is refused is answered as FastAPI does: 422 with a detail. Everything that stays is bounded, and what
// has no room is answered with 503.
package coordinator
