package sidecar

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
)

// format writes the header of a new sidecar and clears what is in front of the slots.
func format(m []byte, o Options, dev, ino uint64) {
	clear(m[:slotsStart])
	copy(m, magic)
	p32 := func(at int, v uint32) { binary.LittleEndian.PutUint32(m[at:], v) }
	p64 := func(at int, v uint64) { binary.LittleEndian.PutUint64(m[at:], v) }
	p32(offVersion, layoutVersion)
	p32(offPolicy, uint32(o.Policy))
	p64(offRingSize, uint64(o.RingSize))
	p32(offDataOffset, uint32(o.DataOffset))
	p32(offSlots, uint32(o.Slots))
	p32(offObjects, uint32(o.Objects))
	p64(offInode, ino)
	p64(offDevice, dev)
	p32(offUID, uint32(os.Geteuid()))
	copy(m[offGeneration:offGeneration+generationLen], o.Generation)
	copy(m[offOwner:offOwner+ownerLen], o.Owner)
	p32(offHeaderSum, crc32.Checksum(m[:offHeaderSum], castagnoli))
}

// text returns a field up to its first zero byte.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// parse reads the header and the state of a sidecar of size bytes, which may contain
// anything. Only the owner of the writer's lock sees a valid state record for sure: without
// the lock, parse may run while both records are being replaced.
func (f *File) parse(m []byte, size int64, owner bool) error {
	bad := func(offset int, format string, args ...any) error {
		return &FormatError{Path: f.path, Offset: offset, What: fmt.Sprintf(format, args...)}
	}
	if len(m) < pageSize || string(m[:len(magic)]) != magic {
		return bad(0, "it does not begin as one")
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(m[at:]) }
	if v := u32(offVersion); v != layoutVersion {
		what := fmt.Sprintf("layout version %d, this release reads %d", v, layoutVersion)
		return &FormatError{Path: f.path, Offset: offVersion, What: what, Newer: v > layoutVersion}
	}
	if u32(offHeaderSum) != crc32.Checksum(m[:offHeaderSum], castagnoli) {
		return bad(offHeaderSum, "its header's checksum is wrong")
	}
	f.opt = Options{
		Policy: Policy(u32(offPolicy)), Generation: text(m[offGeneration : offGeneration+generationLen]),
		Owner: text(m[offOwner : offOwner+ownerLen]), Objects: int(u32(offObjects)), Slots: int(u32(offSlots)),
		RingSize: int(binary.LittleEndian.Uint64(m[offRingSize:])), DataOffset: int(u32(offDataOffset)),
	}
	if err := f.opt.check(); err != nil {
		return bad(offPolicy, "its header: %v", err)
	}
	if f.opt.bytes() != size {
		return bad(offSlots, "%d bytes for %d slots and %d objects", size, f.opt.Slots, f.opt.Objects)
	}
	if !f.readState(m) && owner {
		return bad(offState, "neither of its state records is whole")
	}
	return nil
}
