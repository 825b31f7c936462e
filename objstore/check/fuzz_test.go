//go:build linux

package check_test

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/corpus"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/serde"
)

// FuzzCheck changes words of a segment and its sidecar and makes checksums right again. Looking at
// it ends without a fault, and where it finds nothing, an adopter drops nothing.
//
// An edit is five bytes: the file and what to seal, an offset (u16), a value (u16). cut shortens
// the segment, or, if odd, the sidecar.
func FuzzCheck(f *testing.F) {
	corpus.Add(f, "check")
	l := orphan(f, "0.33.0")
	var files [2][]byte
	for i, suffix := range []string{"", ".ctl"} {
		b, err := os.ReadFile(l.path(suffix))
		require.NoError(f, err)
		files[i] = b
	}
	entry := uint16(l.entry(l.handles[1].ID))
	edit := func(how byte, offset, value uint16) []byte {
		return binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16([]byte{how}, offset), value)
	}
	f.Add([]byte{}, uint16(0))
	f.Add([]byte{}, uint16(10001))
	f.Add(edit(1, entry+8, 4), uint16(0))
	f.Add(edit(3, entry+8, 4), uint16(0))
	f.Add(edit(3, entry+16, 2), uint16(0))
	f.Add(edit(3, entry+24, 60), uint16(0))
	f.Add(edit(3, 32, 0xffff), uint16(0))
	f.Add(edit(3, 1024+16, 9), uint16(0))
	f.Add(edit(0, 32+12, 9), uint16(600))
	f.Fuzz(func(t *testing.T, edits []byte, cut uint16) {
		var b [2][]byte
		for i := range b {
			b[i] = append([]byte(nil), files[i]...)
		}
		mend := false
		for ; len(edits) >= 5; edits = edits[5:] {
			file := b[edits[0]&1]
			mend = mend || edits[0]&2 != 0
			at := int(binary.LittleEndian.Uint16(edits[1:])) % (len(file) - 1)
			copy(file[at:], edits[3:5])
		}
		if mend {
			seal(b[1][:156])
			for at := offStates; at < offStates+128; at += 64 {
				seal(b[1][at : at+64])
			}
			for at := offTable; at < len(b[1]); at += 64 {
				if string(b[1][at:at+8]) != "FREEFREE" {
					sealEntry(b[1], at)
					sealUse(b[1], at)
				}
			}
		}
		b[cut&1] = b[cut&1][:len(b[cut&1])-min(len(b[cut&1]), int(cut/2))]
		for i, suffix := range []string{"", ".ctl"} {
			require.NoError(t, os.WriteFile(l.path(suffix), b[i], 0o600)) // the same inode
		}

		r, err := check.Segment(name, check.Options{Dir: l.dir, Handles: l.handles})
		again, e := check.Segment(name, check.Options{Dir: l.dir, Handles: []serde.Address{{Address: uint64(cut), ID: 5}}})
		require.Equal(t, err == nil, e == nil)
		if err != nil { // a later layout, or a wire that is not known
			require.Regexp(t, "layout version|unknown", err.Error())
			return
		}
		require.LessOrEqual(t, len(r.Findings), 8*objects+2*508*slots+20)
		require.LessOrEqual(t, r.Chunks, objects+len(l.handles))
		require.LessOrEqual(t, again.Chunks, objects+1)
		if len(r.Findings) > 0 {
			return
		}
		w, a, err := objstore.AdoptPool(objstore.Options{
			Name: name, Dir: l.dir, RingSize: ringSize, MaxObjectSize: 16 << 10, Readers: 1, Generation: generation(t, r.Format), FullSums: true,
		})
		require.NoError(t, err)
		require.Zero(t, a.Dropped, "nothing was found, and an adopter drops objects")
		require.Zero(t, a.Damaged)
		w.Fence().Passed()
		require.NoError(t, w.CheckStructure())
		require.NoError(t, w.Detach())
	})
}
