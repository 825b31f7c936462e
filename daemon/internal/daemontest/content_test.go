package daemontest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// sizes are those of objects, by their number.
var sizes = [...]int{4096, 100, 20_000, 1, 64, 9000, 0, 70_000, 300, 33_000}

const (
	largest = 70_000
	shift   = 1 << 20 // places at which content can begin
	mark    = 16      // bytes at both ends of an object that only this object has
)

// Name is the name of the object of a number.
func Name(n int) string { return fmt.Sprint("object-", n) }

// Object is the object of a number: the same in every process. Three of four have the one before as parent.
func Object(n int) wire.Object {
	o := wire.Object{Name: Name(n), Size: int64(sizes[n%len(sizes)]), Note: fmt.Append(nil, "bfloat16 1 ", n), Cost: time.Duration(n) * time.Millisecond}
	if n%4 != 0 {
		o.Parent = Name(n - 1)
	}
	if n%3 == 0 {
		o.Tenant = "tenant"
	}
	return o
}

var noise = sync.OnceValue(func() []byte {
	rng, b := rand.New(rand.NewPCG(1, 2)), make([]byte, largest+shift)
	for i := range len(b) / 8 {
		binary.LittleEndian.PutUint64(b[8*i:], rng.Uint64())
	}
	return b
})

// markOf returns the bytes at both ends of an object, and where its other bytes begin in the noise.
func markOf(space string, n int) (m [mark]byte, at int) {
	h := fnv.New128a()
	_, _ = fmt.Fprintf(h, "%s\x00%d", space, n)
	h.Sum(m[:0])
	return m, int(binary.LittleEndian.Uint64(m[:]) % shift)
}

// Fill writes the bytes of an object of a space.
func Fill(b []byte, space string, n int) {
	m, at := markOf(space, n)
	copy(b, noise()[at:])
	copy(b, m[:])
	if len(b) >= 2*mark {
		copy(b[len(b)-mark:], m[:])
	}
}

// Same reports whether bytes are all those of an object.
func Same(b []byte, space string, n int) bool {
	m, at := markOf(space, n)
	if len(b) < 2*mark {
		want := make([]byte, len(b))
		Fill(want, space, n)
		return bytes.Equal(b, want)
	}
	end := len(b) - mark
	return bytes.Equal(b[:mark], m[:]) && bytes.Equal(b[end:], m[:]) && bytes.Equal(b[mark:end], noise()[at:][mark:end])
}

// wrong reports what is wrong with a hit of an object, nil if nothing is.
func wrong(m *client.Mapping, v wire.Item, space string, n int) error {
	o := Object(n)
	if v.Status != wire.StatusHit || v.Size != o.Size || !bytes.Equal(v.Note, o.Note) {
		return fmt.Errorf("object %d of %s is %s with %d bytes and note %q, want %d and %q", n, space, v.Status, v.Size, v.Note, o.Size, o.Note)
	}
	return wrongBytes(m, v, space, n)
}

// wrongBytes looks at the bytes of a hit only.
func wrongBytes(m *client.Mapping, v wire.Item, space string, n int) error {
	b, err := m.Bytes(v)
	if err != nil {
		return fmt.Errorf("object %d of %s: %w", n, space, err)
	}
	if !Same(b, space, n) {
		return fmt.Errorf("wrong bytes of object %d of %s at %d: %.32x", n, space, v.Offset, b)
	}
	return nil
}
