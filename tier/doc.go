// Package tier keeps objects, which are bytes by key, in levels: memory, disk, Redis.
//
// A [Level] is one of them. Package tier/memory is a shared segment, tier/disk a folder,
// tier/redis a server. All of them pass the tests of package fuzz/tiertest, which a
// level of your own can run, too.
//
// An object never changes: equal keys mean equal bytes, so levels need no order of writes.
// An object may name its parent, as a chunk of a prompt names the chunk in front of it. A child without
// its parent is worthless, so a level evicts children first, and never an ancestor of
// what is being stored.
package tier
