package shmstore_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmstore"
)

// A reservation of which somebody remembers the record goes on in the next process, in its place.
func TestReservationsAreResumed(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{Size: 16 << 10, QuarantineTTL: -1, Quotas: map[string]int64{"t": 4 << 10}})
	idle(t, s, "a", 1000, 1)
	r := begin(t, s, "r")
	res, err := r.Reserve("b", 2000, shmstore.PutOptions{Note: []byte("note"), Tenant: "t", Cost: 5})
	require.NoError(t, err)
	forgotten, err := r.Reserve("c", 2000, shmstore.PutOptions{})
	require.NoError(t, err)
	done, err := r.Reserve("d", 500, shmstore.PutOptions{})
	require.NoError(t, err)
	records := []shmstore.ReservedChunk{res.Chunk(), done.Chunk()}
	handle := res.Object().Handle()
	copy(res.Bytes(), bytes.Repeat([]byte{7}, 1000))
	_, err = done.Commit(0)
	require.NoError(t, err)
	before := s.Tenants()
	require.NoError(t, s.Yield())
	require.NoError(t, s.Yield())
	require.Zero(t, s.Holders())
	require.NotNil(t, forgotten)

	o.Reserved = records
	s, a, err := shmstore.Adopt(o)
	require.NoError(t, err)
	ends(t, s)
	require.True(t, a.Clean)
	require.Equal(t, 2, a.Kept)
	copy(res.Bytes()[1000:], bytes.Repeat([]byte{8}, 1000)) // by the mapping of the process before
	res.Discard()
	forgotten.Discard()
	require.NoError(t, s.CheckStructure())
	r = begin(t, s, "r")
	_, err = r.Resume(done.Object().Handle().ID)
	require.ErrorIs(t, err, shmstore.ErrStale, "it was committed")
	res, err = r.Resume(handle.ID)
	require.NoError(t, err)
	_, err = r.Resume(handle.ID)
	require.ErrorIs(t, err, shmstore.ErrStale, "somebody has it")
	require.Equal(t, records[0], res.Chunk())
	require.Equal(t, handle, res.Object().Handle())
	require.Equal(t, before, s.Tenants())
	_, err = r.Reserve("b", 10, shmstore.PutOptions{})
	require.ErrorIs(t, err, shmstore.ErrKeyExists)
	for i := range 100 {
		_, _ = r.Put(string(rune('A'+i)), make([]byte, 3000), shmstore.PutOptions{}) // finds no room there
		r.Drop(string(rune('A' + i)))
	}
	obj, err := res.Commit(0)
	require.NoError(t, err)
	require.Equal(t, handle, obj.Handle())
	require.Equal(t, "note", string(obj.Note()))
	b, err := r.Bytes(obj)
	require.NoError(t, err)
	require.Equal(t, append(bytes.Repeat([]byte{7}, 1000), bytes.Repeat([]byte{8}, 1000)...), b)
	r.Rollback()
	require.NoError(t, s.Detach())
	o.Reserved = nil
	s, a, err = shmstore.Adopt(o)
	require.NoError(t, err)
	ends(t, s)
	require.Zero(t, a.Dropped)
	require.True(t, cached(s, "b"))
}

// Records are what something else may have written over: no object suffers from them.
func TestBadRecordsOfReservations(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{Size: 16 << 10, QuarantineTTL: -1})
	for _, key := range []string{"a", "b", "c"} {
		idle(t, s, key, 1000, key[0])
	}
	r := begin(t, s, "r")
	res, err := r.Reserve("r", 1000, shmstore.PutOptions{})
	require.NoError(t, err)
	good := res.Chunk()
	require.NoError(t, s.Yield())
	res.Discard()
	rng := rand.New(rand.NewPCG(5, 5))
	number := func(near int) int {
		switch rng.IntN(8) {
		case 1:
			return near + rng.IntN(300) - 150
		case 2:
			return rng.IntN(20 << 10)
		case 3:
			return int(rng.Uint32())
		}
		return near
	}
	resumed := 0
	for range 600 {
		o.Reserved = nil
		for range 1 + rng.IntN(4) {
			o.Reserved = append(o.Reserved, shmstore.ReservedChunk{
				Address: uint64(number(int(good.Address))) / 64 * 64, ID: uint32(number(int(good.ID))), Size: number(good.Size),
				DescriptionOffset: number(good.DescriptionOffset), DescriptionLength: number(good.DescriptionLength), Sum: good.Sum,
			})
		}
		s, a, err := shmstore.Adopt(o)
		require.NoError(t, err)
		require.Equal(t, 3, a.Kept, "%+v", o.Reserved)
		require.Zero(t, a.Dropped)
		require.NoError(t, s.CheckStructure())
		r := begin(t, s, "r")
		for _, rec := range o.Reserved {
			if res, err := r.Resume(rec.ID); err == nil {
				resumed++
				_ = res.Bytes()
				require.NoError(t, s.CheckStructure())
				res.Discard()
			}
		}
		for _, key := range []string{"a", "b", "c"} {
			obj, err := r.Lookup(key, 0)
			require.NoError(t, err)
			b, err := r.Bytes(obj)
			require.NoError(t, err)
			require.Equal(t, bytes.Repeat([]byte(key), 1000), b)
		}
		r.Rollback()
		require.NoError(t, s.CheckStructure())
		require.NoError(t, s.Detach())
	}
	require.Greater(t, resumed, 100)
}

// TestALostReservationHasAPlaceInAFamily: a reservation whose description was overwritten had no place for a parent, and
// Adopt panicked if Options.Parent named one for the key that the reservation has then.
func TestALostReservationHasAPlaceInAFamily(t *testing.T) {
	parent := func(string, []byte) string { return "root" }
	s, o := inFolder(t, shmstore.Options{Size: 16 << 10, QuarantineTTL: -1, Parent: parent})
	idle(t, s, "root", 1000, 1)
	r := begin(t, s, "r")
	res, err := r.Reserve("child", 1000, shmstore.PutOptions{})
	require.NoError(t, err)
	record := res.Chunk()
	record.Sum++ // as if somebody had written behind the payload
	require.NoError(t, s.Yield())
	res.Discard()

	o.Reserved = []shmstore.ReservedChunk{record}
	s, _, err = shmstore.Adopt(o)
	require.NoError(t, err)
	ends(t, s)
	require.NoError(t, s.CheckStructure())
	r = begin(t, s, "r")
	lost, err := r.Resume(record.ID)
	require.NoError(t, err)
	lost.Discard()
	r.Rollback()
	require.NoError(t, s.CheckStructure())
}
