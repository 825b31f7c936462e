package sidecar

import "hash/crc32"

// The layout of a sidecar, as the tables of docs/format.md describe it. Integers are
// little-endian, offsets and sizes are in bytes. Only the writer writes outside of the marks
// and the slots, and a reader writes only its slot and the mark of it.
const (
	magic         = "RINGCTL\x00" // 8 bytes
	layoutVersion = 1

	// The header: never changed once the sidecar has its name.
	offVersion    = 8   // 4, layout
	offPolicy     = 12  // 4, [Policy]
	offRingSize   = 16  // 8
	offDataOffset = 24  // 4
	offSlots      = 28  // 4, number of slots
	offObjects    = 32  // 4, number of entries of the table; 4 unused bytes follow
	offInode      = 40  // 8, of the segment
	offDevice     = 48  // 8, of the segment
	offUID        = 56  // 4, user id of the maker; 4 unused bytes follow
	offGeneration = 64  // generationLen, zeros behind the text
	generationLen = 24  //
	offOwner      = 88  // ownerLen, zeros behind the text
	ownerLen      = 64  //
	offHeaderSum  = 152 // 4, checksum of everything before it
	headerSize    = 156 //

	offReadersLock = 512 // 1, only its lock is used

	// Two records of the state, one after the other.
	offState     = 1024 // 2 x stateSize
	stateSize    = 64   //
	stateSeq     = 0    // 8, sequence number
	stateEpoch   = 8    // 8
	stateNextID  = 16   // 4
	stateReaders = 20   // 4
	stateClean   = 24   // 1; 3 unused bytes follow
	statePID     = 28   // 4; 28 unused bytes follow
	stateSum     = 60   // 4, checksum of everything before it

	pageSize = 4096

	// A byte for each slot, 1 if the slot is taken and 0 if not: see marks.go.
	offMarks  = pageSize // marksSize
	marksSize = maxSlots //

	// The slots of readers, whose first byte is only locked.
	slotsStart = offMarks + marksSize       // number of slots x slotSize
	slotSize   = 2048                       // the first 4 bytes are unused
	slotTop    = 4                          // 4, number of holds that may be in use
	slotPID    = 8                          // 4, for people; 4 unused bytes follow
	slotHolds  = 16                         // maxHolds x 4: id of a chunk + 1, or 0 if unused
	maxHolds   = (slotSize - slotHolds) / 4 // 508

	// The table of objects is behind the last slot.
	entrySize              = 64 // number of objects x entrySize
	entryMark              = 0  // 8, see validMark and markFree
	entryAddress           = 8  // 8
	entryID                = 16 // 4
	entryLength            = 20 // 4, bytes of the chunk with its header
	entryDescriptionOffset = 24 // 4, in the payload
	entryDescriptionLength = 28 // 4
	entrySum               = 32 // 4, see PayloadSum
	entryFull              = 36 // 4, 1 if the sum covers every byte
	entryBody              = 8  // the mark's checksum covers the bytes from here
	entryEnd               = 40 // to here
	entryUse               = 40 // 8, see SetUse
	entryTime              = 48 // 8, nanoseconds since 1970, when the entry was put; 8 unused bytes follow

	// markFree is the mark of a free entry. Its halves are equal and those of a valid
	// mark are complements, so that it differs in 32 bits from every valid mark. It is not
	// 0, so that a hole in the file does not read as free entries.
	markFree = 0x45455246_45455246 // "FREEFREE"

	// useCheck masks the bits of a use word that contain its check.
	useCheck = (1<<30 - 1) << 32

	// idLimit is the first id that no chunk has.
	idLimit = 1 << 31

	maxSlots   = 1 << 12
	maxObjects = 1 << 24
)

// castagnoli is the table of every checksum (CRC-32C).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)
