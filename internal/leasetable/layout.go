package leasetable

import "hash/crc32"

// The layout of a table. Integers are little-endian, offsets and sizes in bytes.
const (
	magic   = "RINGLSE\x00" // 8 bytes
	version = 1

	offVersion    = 8  // 4
	offLeases     = 12 // 4, number of records of leases
	offItems      = 16 // 4, number of records of objects; 4 unused bytes follow
	offGeneration = 24 // 8, of the segment
	offCaution    = 32 // 8, see Options.Caution
	offHeaderSum  = 40 // 4, checksum of everything before it

	pageSize = 4096

	// A record of a lease: pageSize + i x leaseSize.
	leaseSize   = 576
	leaseMark   = 0                  // 8, see validMark
	leaseSerial = 8                  // 8
	leaseSeq    = 16                 // 8, of two records of one serial the higher one counts
	leaseUntil  = 24                 // 8, nanoseconds since 1970, 0 is never
	leaseIDLen  = 32                 // 1
	leaseOwnLen = 33                 // 1
	leaseTexts  = 34                 // the id, then the owner
	maxText     = 255                // of each
	leaseEnd    = leaseTexts + 2*255 // 544
	bodyBegin   = 8                  // the mark's checksum covers a record from here

	// A record of an object, behind those of leases.
	itemSize        = 64
	itemSerial      = 8  // 8, of the lease
	itemAddress     = 16 // 8, of the chunk
	itemID          = 24 // 4, of the chunk
	itemLength      = 28 // 4, bytes of the chunk with its header
	itemDescription = 32 // 4, where the description begins in the payload
	itemDescLength  = 36 // 4
	itemDescSum     = 40 // 4, of the description; 4 unused bytes follow
	itemEnd         = 48
	itemState       = 48 // 8, stateReserved or statePinned; 8 unused bytes follow

	// markFree is the mark of a free record: its halves are equal, and those of a valid one are
	// complements. It is not 0, so that a hole in the file is no free record.
	markFree = 0x45455246_45455246 // "FREEFREE"

	stateReserved = 0x44565352_44565352 // "RSVDRSVD"
	statePinned   = 0x4e4e4950_4e4e4950 // "PINNPINN"

	maxLeases = 1 << 20
	maxItems  = 1 << 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// validMark returns the mark of a record whose body is b.
func validMark(b []byte) uint64 {
	sum := crc32.Checksum(b, castagnoli)
	return uint64(^sum)<<32 | uint64(sum)
}

func (o Options) bytes() int64 { return pageSize + int64(o.Leases)*leaseSize + int64(o.Items)*itemSize }
