// Package sizing computes what caches of many hosts hit: how many look-ups each level answers, how many
// bytes a second go over each link, and how much is left to compute.
//
// Every host has a [Host]: memory and, if it has one, a disk, both with the rule of package evict. All hosts
// may share a store, such as a Redis, a bucket or a folder, which gives up what was used least lately, or
// nothing. What a host does not find, it asks the store for; what the store does not have is computed, kept in
// memory, and written to disk and store. What comes from a lower level is kept in memory and on disk too. So
// what a host has does not depend on what the store has, and hosts can be replayed one after the other.
//
// There are two kinds of load:
//   - a [Trace], which is replayed on all hosts (PlanTrace);
//   - a [Shape], of independent look-ups by Zipf's law. All hosts are alike, so that one is replayed, and the
//     store is asked for its misses by each of them; what it answers follows from the miss rates
//     (PlanShape, [lru]).
//
// See docs/decisions.md, "The calculator replays the rule".
//
// Neither has the time that a fetch takes, nor places in memory: bench/scale simulates the network, and
// bench/eviction what placement wastes.
package sizing
