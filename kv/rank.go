package kv

import "fmt"

// A Rank is LMCache's kv_rank: which part of the KV cache of a model an object is, from the place of its worker
// (ObjectKey.ComputeKVRank in lmcache/v1/distributed/api.py of 0.5.6). From the highest byte down it is the number of
// workers, the worker, and both on the worker's machine.
type Rank uint32

// maxWorld is the most workers that a Rank has room for. LMCache does not check: with more, the numbers of one field
// spill into the next.
const maxWorld = 255

// NewRank returns the rank of a worker out of so many, of which local are on its machine. Workers count from 0. The
// multiprocess server takes all workers for local ones.
func NewRank(world, worker, local, localWorker int) (Rank, error) {
	if err := checkWorker(world, worker); err != nil {
		return 0, invalid(err)
	}
	if err := checkWorker(local, localWorker); err != nil {
		return 0, invalid(fmt.Errorf("on its machine: %w", err))
	}
	return Rank(world<<24 | worker<<16 | local<<8 | localWorker), nil
}

func checkWorker(world, worker int) error {
	if world < 1 || world > maxWorld {
		return fmt.Errorf("world of %d workers; 1 to %d are possible", world, maxWorld)
	}
	if worker < 0 || worker >= world {
		return fmt.Errorf("worker %d of %d", worker, world)
	}
	return nil
}
