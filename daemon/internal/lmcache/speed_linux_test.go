package lmcache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

// BenchmarkLookup looks up 1,000 chunks that are there.
func BenchmarkLookup(b *testing.B) {
	bed := newBed(b, func(bed *bed) {
		bed.mo.Size, bed.mo.MaxObjects, bed.mo.MaxPins, bed.most = 64<<20, 1<<14, 1<<16, 64<<20
	})
	e := bed.engine("engine", since057)
	e.register(1, 1)
	tokens := prompt(1, 1000*chunk)
	for n := 0; n < 1000; n += 100 {
		require.Equal(b, 100, len(e.reserveAndCommit(of(e.key("w", tokens, n*chunk, (n+100)*chunk), 0), 1)))
	}
	for i := 0; b.Loop(); i++ {
		k := e.key(fmt.Sprint("r", i), tokens, 0, 1000*chunk)
		require.EqualValues(b, 1000, e.lookUp(k))
		e.end(k.RequestId)
	}
}

// BenchmarkRequest is all calls of a request that finds half of its chunks and stores the others.
func BenchmarkRequest(b *testing.B) {
	bed := newBed(b, func(bed *bed) { bed.mo.Size, bed.mo.MaxObjects = 64<<20, 4096 })
	e := bed.engine("engine", since057)
	e.register(1, 1)
	head := prompt(1, 4*chunk)
	e.reserveAndCommit(of(e.key("w", head, 0, 4*chunk), 0), 1)
	for i := 0; b.Loop(); i++ {
		tokens := append(head[:len(head):len(head)], prompt(i*1000, 4*chunk)...)
		k := e.key(fmt.Sprint("r", i), tokens, 0, 8*chunk)
		require.EqualValues(b, 4, e.lookUp(k))
		load := of(e.key(k.RequestId, tokens, 0, 4*chunk), 0)
		e.must("EngineDrivenService/PrepareRetrieve", &mp.PrepareRetrieveRequest{Key: load, InstanceId: 1}, &mp.PrepareRetrieveResponse{})
		e.must("EngineDrivenService/CommitRetrieve", &mp.CommitRetrieveRequest{Key: load, InstanceId: 1}, &mp.CommitRetrieveResponse{})
		e.reserveAndCommit(of(e.key(k.RequestId, tokens, 4*chunk, 8*chunk), 0), 1)
		e.end(k.RequestId)
	}
}

// reserveAndCommit stores a range, and writes nothing.
func (e *engine) reserveAndCommit(k *mp.IpcCacheServerKey, instance int64) []int64 {
	e.Helper()
	offsets, _ := e.prepareStore(k, instance)
	require.True(e, e.commitStore(k, instance, nil))
	return offsets
}
