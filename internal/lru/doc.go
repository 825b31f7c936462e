// Package lru is vLLM's LRU cache, a bounded map that evicts what was used least
// recently, with every oddity that decides what is evicted next: caches in two processes
// have to agree. Package lrusync keeps two of them equal, package mmcache keeps items in
// one, and lrusync/upstream has the methods of Python's class.
//
// A [Cache] is for one goroutine at a time. Its changes can be taken back, see
// [Cache.Begin].
//
// The texts of errors begin with "lrusync", the package whose users see them.
package lru
