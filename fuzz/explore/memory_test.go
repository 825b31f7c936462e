package explore_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/explore"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// memory makes each load and store of a word of a segment and its sidecar, by the real
// code, a step of the process that does it. The state is all words that were touched so far
// and the bytes of the segment. The bodies of entries of the table are not shown: the writer
// alone writes them, so they depend on where it stands.
type memory struct {
	seg   *segment.Segment
	files []*sidecar.File
	words map[string][]byte
	// quiet, if not nil, reports that an access is no step of its own, since no other process
	// has to do with the word.
	quiet func(name string) bool
}

func watch(r *explore.Run, seg *segment.Segment, files ...*sidecar.File) *memory {
	m := &memory{seg: seg, files: files, words: map[string][]byte{}}
	mem.Watch(func(a mem.Access, word []byte) {
		name := m.name(word)
		m.words[name] = word
		if m.quiet != nil && m.quiet(name) {
			return
		}
		r.Access(string(a) + " " + name)
		if a == mem.Loads {
			r.Saw(value(word))
		}
	})
	r.Cleanup(func() { mem.Watch(nil) })
	r.State(m.text)
	return m
}

// name returns which word of docs/format.md it is.
func (m *memory) name(word []byte) string {
	if off, ok := mem.Offset(m.seg.Bytes(), mem.Addr(word)); ok {
		if off%64 == 0 {
			return fmt.Sprintf("id@%d", off)
		}
		return fmt.Sprintf("+%d@%d", off%64, off/64*64)
	}
	for _, f := range m.files {
		off, ok := f.Offset(mem.Addr(word))
		if !ok {
			continue
		}
		slots := f.Options().Slots
		switch at := off - 8192; {
		case off < 4096:
			return fmt.Sprintf("sidecar+%d", off)
		case at < 0: // eight are loaded at once, and four are stored
			return fmt.Sprintf("marks%d", off-4096)
		case at < 2048*slots && at%2048 < 16:
			return fmt.Sprintf("slot%d.%s", at/2048, []string{"", "top", "pid", ""}[at%2048/4])
		case at < 2048*slots:
			return fmt.Sprintf("slot%d.place%d", at/2048, (at%2048-16)/4)
		default:
			at -= 2048 * slots
			return fmt.Sprintf("entry%d+%d", at/64, at%64)
		}
	}
	return "?"
}

func value(word []byte) string {
	if len(word) == 8 {
		return fmt.Sprintf("%x", binary.LittleEndian.Uint64(word))
	}
	switch v := binary.LittleEndian.Uint32(word); v {
	case shmring.DeadID:
		return "dead"
	case shmring.GoneID:
		return "gone"
	default:
		return fmt.Sprint(v)
	}
}

func (m *memory) text() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m.words)) {
		if !strings.HasPrefix(name, "sidecar+") {
			fmt.Fprintf(&b, "%s=%s ", name, value(m.words[name]))
		}
	}
	sum := sha256.Sum256(m.seg.Bytes())
	fmt.Fprintf(&b, "bytes=%x", sum[:3])
	return b.String()
}

// clean asserts that an exploration covered everything and found nothing.
func clean(t *testing.T, res explore.Result) {
	t.Helper()
	t.Log(res)
	require.Nil(t, res.Failure)
	require.True(t, res.Complete)
}

// found asserts that an exploration found a defect that was planted.
func found(t *testing.T, res explore.Result, invariant string) {
	t.Helper()
	t.Log(res)
	require.NotNil(t, res.Failure)
	require.Equal(t, invariant, res.Failure.Name)
}

// look is a reader that looks at a payload in the way of shmstore.View: the hold, the second
// look at the id, the bytes in two steps, release. It returns whether the handle was good. Each byte must be
// want.
func look(p *explore.Process, m []byte, slot *sidecar.Slot, at int, id uint32, want byte, secondLook bool) bool {
	if c, err := shmring.ReadChunk(m, uint64(at)); !secondLook && (err != nil || c.ID != id) {
		return false // the planted bug: it looks before it takes the hold
	}
	place, ok := slot.Hold(id)
	if !ok {
		p.Failf("no place in the slot")
	}
	if c, err := shmring.ReadChunk(m, uint64(at)); secondLook && (err != nil || c.ID != id) {
		slot.Release(place)
		return false
	}
	for half := range 2 {
		p.Access(fmt.Sprintf("read half %d of the payload", half))
		b := m[at+64+half*32 : at+64+half*32+32]
		p.Saw(string(b[:1]))
		if !bytes.Equal(b, bytes.Repeat([]byte{want}, 32)) {
			p.Failf("the payload of id %d is %q, not %q: the writer used it again under the reader", id, b[:1], want)
		}
	}
	slot.Release(place)
	return true
}

// forget drops the words of a file that is about to be unmapped.
func (m *memory) forget(f *sidecar.File) {
	for name, word := range m.words {
		if _, ok := f.Offset(mem.Addr(word)); ok {
			delete(m.words, name)
		}
	}
}
