// Package lrusync keeps two caches in different processes equal without a
// question between them: a [Receiver] in the engine (P1) keeps items, and a
// [Sender] in the frontend (P0) keeps a mirror of that. Items that the engine
// already keeps are not sent again, only named.
//
// It is vLLM's mirrored LRU cache (vllm/multimodal/cache.py and cache/,
// vllm/utils/cache.py, 0.11.0 to 0.33.0): its order of eviction, its sizes, its
// changes from release to release, see Cache in [pycompat.Generation]. Each end can be
// vLLM's own. vLLM's classes step by step are in lrusync/upstream.
//
// # Why they stay equal
//
// Both ends do the same to their caches, request by request, in the order of the
// requests. vLLM's frontend can break that in two ways, and its engine then
// fails requests or dies: it goes through the items of a request in another
// order than the engine, and it lets requests overtake each other between the
// update of its cache and the socket. [Sender.Send] goes through the items as
// the engine does, and update and sending are one step, a [Ticket].
//
//	                 Send                               Receive
//	frontend --> foresee, enqueue  -- ticket, items -->  do the same --> model
//	                 Missed, Repair <-- what is missing, drift --
//
// # When they drift all the same
//
// A request can be lost behind the socket, and engines are restarted. Between two
// ends of this package every request carries a digest of what should have happened
// before it, so the next request shows it: the receiver then stops changing its
// cache and reports its contents, and the sender starts anew from there
// ([Sender.Repair]). A vLLM engine can't notice before it misses an item; its
// answer names the item ([Sender.Missed], vLLM 0.28 on). In both cases the request
// is sent again with its data, and the client does not see it. Before 0.28 a miss
// ends the engine.
//
// # Lifetimes
//
// A Sender keeps sizes and prompt updates, never the data: who sends again needs
// its own copy, or makes it anew. A Receiver keeps the values it was given until
// they are evicted; it copies nothing.
//
// # Concurrency
//
// Sender and Receiver may be used by any number of goroutines. While a request is
// being sent only Send and Clear wait, until their context ends. So enqueue must call neither of
// them, and may call every other method.
package lrusync
