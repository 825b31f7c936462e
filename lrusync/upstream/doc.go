// Package upstream is vLLM's mirrored LRU caches step by step, as its own
// processor and engine call them: the LRU cache, the caches of the frontend, with
// and without a mirror in the engine, and the engine's. It serves the agent, and
// tests that compare each step with vLLM (0.11.0 to 0.33.0).
//
// Go programs use package lrusync: its Sender does a whole request at once and
// can't drift by itself, while a caller of these steps can do all that vLLM's own
// frontend does wrong.
//
//	here                  vLLM (vllm/multimodal/cache.py, from 0.31 cache/)
//	LRUCache              LRUCache (vllm/utils/cache.py)
//	ProcessorOnlyCache    MultiModalProcessorOnlyCache
//	SenderCache           MultiModalProcessorSenderCache, from 0.31 LruKeyReplicatedSenderCache
//	ReceiverCache         MultiModalReceiverCache, from 0.31 LruKeyReplicatedReceiverCache
//
// All caches but LRUCache may be used by any number of goroutines. Values and
// prompt updates are kept, not copied.
package upstream
