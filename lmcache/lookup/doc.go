// Package lookup is the look-up between scheduler and workers of LMCache's in-process engine: how many tokens
// of a request are stored (lmcache/v1/lookup_client of 0.5.6, and of lmcache.inprocess in 0.5.7;
// LMCacheLookupClient and LMCacheLookupServer). A [Server] answers unmodified schedulers, a [Client] asks
// unmodified workers.
//
// # The wire
//
// ZeroMQ over unix sockets, one for each worker, whose paths both sides compute ([Address]). The client is a
// REQ socket and the server a ROUTER: behind an empty frame, a question has the hashes of the chunks, how
// many tokens each has, the ID of the request, and its options as JSON or an empty text; with blending,
// tokens stand in place of the first two. Each frame is a msgpack value. The answer is a number of 4 bytes,
// big-endian. A client asks all workers, and takes the least number.
//
// A worker of LMCache gives no answer to what it can't read, and its scheduler stands still for 3 s. A Server
// answers 0 then: compute it. Who waits too long closes its connections, and so never takes a late answer for
// the next one. The request of an answer that can't be sent is given to [ServerOptions].Undelivered, so that
// nothing is kept for it.
//
// # What is left out
//
// With enable_async_loading, LMCache's scheduler and workers have another wire, of PUSH and PULL sockets, on
// which a look-up also begins the load (LMCacheAsyncLookupClient). It is not here: such a scheduler gets no
// answer from a Server.
//
// # Peers that hash otherwise
//
// If the PYTHONHASHSEED of scheduler and worker differ, or the algorithm or chunk, all answers are 0, and
// nobody reports it. A Server with a Hasher finds it: in the form of the hashes and the lengths of chunks,
// for about half of the hashes, and with [Server.Stored] for certain: what a request had for its first chunk
// when it was looked up is compared with what is stored of the same request.
//
// # Errors and concurrency
//
// What is refused wraps fs.ErrInvalid. Any number of goroutines may use a Server and a Client; a Client asks
// one question at a time. Connections, messages and what is remembered of requests are bounded. Close ends
// all goroutines.
package lookup
