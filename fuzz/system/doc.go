// Package system runs sequences of operations on real systems and compares what they reply.
//
// A runner is a fuzz.System: [Agent] is this module in the same process, [Start] is any process
// that speaks the agent's protocol (docs/agent.md), and [StartVLLM] is vLLM's own classes, of any
// release that a Python can import. The models of fuzz/model are systems as well.
//
// A [Family] is what can be compared: rings, stores of the policy fifo, LRU caches, and the mirrored caches.
// It has a generator, a model and a rule: which fields of which replies have to be the same. [Differential]
// generates sequences of a family and performs each on two systems:
//
//	seed -> Generator -> []Op -> lead: replies, references resolved -> follower: replies -> Family's rule
//	                                                                                          |
//	                                             fuzz.Failure, minimized <--- a difference <--+
//
// `ringcache fuzz` is all of this as a command.
package system
