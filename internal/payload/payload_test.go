package payload_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/payload"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

// A description is read as it was written; what is cut off, too long, or no number or text is refused.
func TestDescription(t *testing.T) {
	d := payload.Description{Cost: 1.5e9, Key: "key", Tenant: "t", Note: []byte{0, 1}}
	b := make([]byte, d.Size())
	d.Write(b)
	got, err := payload.Parse(b)
	require.NoError(t, err)
	require.Equal(t, d, got)
	b[len(b)-1] = 9
	require.Equal(t, []byte{0, 1}, got.Note, "the note is a copy")
	require.Len(t, make([]byte, payload.Description{}.Size()), payload.MinSize)

	for n := range b {
		_, err := payload.Parse(b[:n])
		require.ErrorIs(t, err, payload.ErrDescription, "%d bytes", n)
	}
	_, err = payload.Parse(append(bytes.Clone(b), 0))
	require.ErrorIs(t, err, payload.ErrDescription)
	for _, cost := range []float64{-1, math.NaN(), math.Inf(1)} {
		c := bytes.Clone(b)
		payload.WriteCost(c, cost)
		_, err = payload.Parse(c)
		require.ErrorIs(t, err, payload.ErrDescription, "%v", cost)
	}
	c := bytes.Clone(b)
	binary.LittleEndian.PutUint32(c[8:], math.MaxUint32)
	_, err = payload.Parse(c)
	require.ErrorIs(t, err, payload.ErrDescription, "a length")
}

// A chunk is verified against its entry, and each difference is refused.
func TestVerify(t *testing.T) {
	ring := make([]byte, 1<<16)
	pool := shmring.NewPool(ring, payload.PoolOptions(0, payload.MinAlign, true))
	d := payload.Description{Key: "key"}
	front := payload.MinOffset(true) + 100
	address, id, b, err := pool.Alloc(front + d.Size())
	require.NoError(t, err)
	require.Zero(t, (address+payload.Lead)%payload.MinAlign)
	d.Write(b[front:])
	pool.Publish(id)
	r := sidecar.Record{
		Address: address, ID: id, Size: len(b) + shmring.HeaderSize,
		DescriptionOffset: front, DescriptionLength: d.Size(), Sum: sidecar.PayloadSum(b, len(b), false),
	}
	got, err := payload.Verify(ring, r, true)
	require.NoError(t, err)
	require.Equal(t, "key", got.Key)
	pool.Kill(id) // as a writer does that is about to evict it
	_, err = payload.Verify(ring, r, true)
	require.NoError(t, err)
	for want, change := range map[string]func(r *sidecar.Record){
		"size of the chunk":        func(r *sidecar.Record) { r.Size++ },
		"begin of the description": func(r *sidecar.Record) { r.DescriptionOffset = payload.MinOffset(true) - 1 },
		"bytes of the description": func(r *sidecar.Record) { r.DescriptionLength++ },
		"checksum of the payload":  func(r *sidecar.Record) { r.Sum++ },
	} {
		other := r
		change(&other)
		_, err := payload.Verify(ring, other, true)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, shmring.ErrCorrupt)
	}
	b[front+8] ^= 1 // in the description
	_, err = payload.Verify(ring, r, true)
	require.ErrorContains(t, err, "checksum of the payload")
}

// The alignment is read back from the format, unless the format is another's.
func TestFormatHasTheAlignment(t *testing.T) {
	require.Equal(t, "kv", payload.Format("kv", payload.MinAlign))
	for _, align := range []int{0, 63, 96, 8192} {
		require.False(t, payload.ValidAlign(align))
	}
	for format, align := range map[string]int{
		payload.Format("kv", 4096): 4096, "kv": 64, "kv@96": 64, "kv@": 64, "kv@-1": 64, fmt.Sprint("kv@", math.MaxInt): 64,
	} {
		pool := payload.Pool(make([]byte, 1<<16), sidecar.Options{Generation: format}, true)
		require.EqualValues(t, max(align, 128), pool.Extent(100), format)
	}
	pool := payload.Pool(make([]byte, 1<<16), sidecar.Options{Generation: "kv@4096"}, false)
	require.EqualValues(t, 128, pool.Extent(100), "vLLM's formats have none")
}
