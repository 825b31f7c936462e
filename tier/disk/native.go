package disk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// The head of a native file. Numbers are little-endian.
const (
	nativeMagic   = "ringobj\x00"
	nativeVersion = 1

	nativeVersionAt = 8  // u16, then u16 0
	nativeLengthAt  = 12 // u32, of the head, a multiple of nativeAlign
	nativeSizeAt    = 16 // u64, of the object
	nativeCostAt    = 24 // u64, nanoseconds
	nativeSumAt     = 32 // u32, CRC-32C of the object's bytes
	nativeLengthsAt = 36 // five u16: of space, name, parent, tenant, note; then u16 0
	nativeTextsAt   = 48 // the texts, one behind the other; then zeros
	nativeCheck     = 4  // the last bytes of the head: u32, CRC-32C of those before it

	// The bytes of the object begin at a multiple of nativeAlign.
	nativeAlign = 64
	maxTexts    = tier.MaxSpace + 2*tier.MaxName + tier.MaxTenant + tier.MaxNote
	nativeMax   = (nativeTextsAt + maxTexts + nativeCheck + nativeAlign - 1) / nativeAlign * nativeAlign
	// nativeFirst bytes are read at once. Most heads are shorter, and need no second read.
	nativeFirst = 512
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Native is the layout of this library: every file has the whole description of its object, a checksum of the
// head and one of the bytes. The files of a space are in one folder, so that a person can remove a space, and
// in 256 folders below it by the hash of their names, so that no folder gets too large.
type Native struct{}

// Name is "native".
func (Native) Name() string { return "native" }

// Path is FOLDER/XX/HASH: the hash is the SHA-256 of the name, in hexadecimal, and XX its first
// two digits: names may have any bytes, and lengths that no file name can have. The folder is "s-" and the
// space if that has at most 100 letters, digits, "-", "_" and ".", else "h-" and the hash of the space.
func (Native) Path(k tier.Key) (string, error) {
	if err := k.Validate(); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(k.Name))
	folder := nativeFolder(k.Space)
	path := make([]byte, 0, len(folder)+4+2*len(sum))
	path = append(append(path, folder...), '/')
	path = append(hex.AppendEncode(path, sum[:1]), '/')
	return string(hex.AppendEncode(path, sum[:])), nil
}

func nativeFolder(space string) string {
	plain := len(space) <= 100
	for i := range len(space) {
		c := space[i]
		plain = plain && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' ||
			c == '_' || c == '.')
	}
	if plain {
		return "s-" + space
	}
	sum := sha256.Sum256([]byte(space))
	return "h-" + hex.EncodeToString(sum[:])
}

// AppendHead implements [Layout].
func (Native) AppendHead(dst []byte, o tier.Object, sum uint32) ([]byte, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	texts := [...]string{o.Space, o.Name, o.Parent, o.Tenant, string(o.Note)}
	length := nativeTextsAt + nativeCheck
	for _, s := range texts {
		length += len(s)
	}
	length = (length + nativeAlign - 1) / nativeAlign * nativeAlign
	from := len(dst)
	dst = append(dst, nativeMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, nativeVersion)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(length))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(o.Size))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(o.Cost))
	dst = binary.LittleEndian.AppendUint32(dst, sum)
	for _, s := range texts {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s)))
	}
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	for _, s := range texts {
		dst = append(dst, s...)
	}
	dst = append(dst, make([]byte, from+length-nativeCheck-len(dst))...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli)), nil
}

// ParseHead implements [Layout]. The path alone decides whether a file is foreign, since a root of this
// layout belongs to one level: whatever else is at such a path is damaged. The checksum of the head comes
// before any field but the length, so that no other check meets random bytes.
func (Native) ParseHead(path string, file io.ReaderAt, size int64) (Head, error) {
	if !nativePath(path) {
		return Head{}, fmt.Errorf("disk: %q is no path of an object: %w", path, ErrPath)
	}
	torn := func(format string, args ...any) (Head, error) {
		return Head{}, fmt.Errorf("disk: file %s "+format+": %w",
			append(append([]any{path}, args...), tier.ErrCorrupt)...)
	}
	if size < nativeAlign {
		return torn("has %d bytes, fewer than a head", size)
	}
	head := make([]byte, min(size, nativeFirst))
	if err := readHead(file, head, 0); err != nil {
		return Head{}, err
	}
	if string(head[:len(nativeMagic)]) != nativeMagic {
		return torn("does not begin as one of the native layout")
	}
	if v := binary.LittleEndian.Uint16(head[nativeVersionAt:]); v != nativeVersion {
		return torn("is of version %d; this library reads version %d", v, nativeVersion)
	}
	length := int64(binary.LittleEndian.Uint32(head[nativeLengthAt:]))
	if length < nativeAlign || length > nativeMax || length%nativeAlign != 0 || length > size {
		return torn("has a head of %d bytes in %d", length, size)
	}
	if length <= int64(len(head)) {
		head = head[:length]
	} else {
		head = append(head, make([]byte, length-int64(len(head)))...)
		if err := readHead(file, head[nativeFirst:], nativeFirst); err != nil {
			return Head{}, err
		}
	}
	end := len(head) - nativeCheck
	if crc32.Checksum(head[:end], castagnoli) != binary.LittleEndian.Uint32(head[end:]) {
		return torn("has a head with a wrong checksum")
	}
	bytesOf := binary.LittleEndian.Uint64(head[nativeSizeAt:])
	cost := binary.LittleEndian.Uint64(head[nativeCostAt:])
	if bytesOf != uint64(size-length) || cost > math.MaxInt64 {
		return torn("has %d bytes behind its head, which names %d", size-length, bytesOf)
	}
	var texts [5]string
	at := nativeTextsAt
	for i := range texts {
		n := int(binary.LittleEndian.Uint16(head[nativeLengthsAt+2*i:]))
		if n > end-at {
			return torn("has texts longer than its head")
		}
		texts[i] = string(head[at : at+n])
		at += n
	}
	o := tier.Object{
		Key: tier.Key{Space: texts[0], Name: texts[1]}, Size: size - length, Parent: texts[2], Tenant: texts[3],
		Cost: time.Duration(cost),
	}
	if texts[4] != "" {
		o.Note = []byte(texts[4])
	}
	h := Head{Object: o, Length: length, Sum: binary.LittleEndian.Uint32(head[nativeSumAt:]), HasSum: true}
	// A head is written in one way only, so whatever is odd about it shows here.
	if again, err := (Native{}).AppendHead(nil, o, h.Sum); err != nil || !bytes.Equal(again, head) {
		return torn("has a head that this library does not write")
	}
	return h, nil
}

// readHead fills b. A file that ends before was truncated after its size was read.
func readHead(file io.ReaderAt, b []byte, at int64) error {
	n, err := file.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case err == io.EOF: //nolint:errorlint // ReaderAt returns it as it is
		return fmt.Errorf("disk: a file ends inside its head: %w", tier.ErrCorrupt)
	}
	return err
}

// nativePath reports whether a path has the form of Native.Path's.
func nativePath(path string) bool {
	folder, rest, ok := strings.Cut(path, "/")
	if !ok || !strings.HasPrefix(folder, "s-") && !strings.HasPrefix(folder, "h-") {
		return false
	}
	if len(rest) != 3+2*sha256.Size || rest[2] != '/' || rest[:2] != rest[3:5] {
		return false
	}
	for _, c := range []byte(rest[3:]) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}
