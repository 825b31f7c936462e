package preprocess

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// withSegments puts segments behind the beginning of a JPEG file.
func withSegments(file []byte, marker byte, segments ...[]byte) []byte {
	out := bytes.Clone(file[:2])
	for _, s := range segments {
		out = binary.BigEndian.AppendUint16(append(out, 0xff, marker), uint16(len(s)+2))
		out = append(out, s...)
	}
	return append(out, file[2:]...)
}

// withChunk puts a chunk behind the header of a PNG file.
func withChunk(file []byte, kind string, data []byte) []byte {
	const header = 8 + 25
	out := binary.BigEndian.AppendUint32(bytes.Clone(file[:header]), uint32(len(data)))
	out = append(append(out, kind...), data...)
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[header+4:]))
	return append(out, file[header:]...)
}

// What takes long is refused when the header is looked at, before anything is decoded.
func TestTooMuchWorkIsRefusedByInspect(t *testing.T) {
	jpg, png := readImage(t, "images/420.jpg"), readImage(t, "images/rgb-57x31.png")
	progressive := readImage(t, "images/progressive.jpg")
	repeated := func(n int, b []byte) [][]byte {
		out := make([][]byte, n)
		for i := range out {
			out[i] = b
		}
		return out
	}
	const large = 60000
	exif := append([]byte("Exif\x00\x00"), make([]byte, large)...)
	icc := append([]byte("ICC_PROFILE\x00\x01\x01"), make([]byte, large)...)
	xmp := func(n int) []byte {
		return []byte("XML:com.adobe.xmp\x00\x00\x00\x00\x00" + strings.Repeat("tiff:Orientation ", n/17))
	}
	table := append([]byte{0x00, 1}, append(make([]byte, 15), 0)...) // one code
	scan := progressive[bytes.LastIndex(progressive, []byte{0xff, mSOS}) : len(progressive)-2]
	scans := func(n int) []byte {
		return append(append(bytes.Clone(progressive[:len(progressive)-2]), bytes.Repeat(scan, n)...), 0xff, mEOI)
	}
	for _, c := range []struct {
		name, text string
		file       []byte
	}{
		{"scans", "scans", scans(maxScans)},
		{"60000 scans", "scans", scans(60000)},
		{"EXIF data of a JPEG", "EXIF", withSegments(jpg, mAPP1, repeated(maxMetadata/large+1, exif)...)},
		{"tables", "tables", withSegments(jpg, mDHT, repeated(maxTables/len(table)+1, table)...)},
		{"tables in few segments", "tables", withSegments(jpg, mDHT, repeated(maxTables/(3000*len(table))+1, bytes.Repeat(table, 3000))...)},
		{"quantization tables", "tables", withSegments(jpg, mDQT, repeated(maxTables/65+1, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...))...)},
		{"EXIF data of a PNG", "eXIf", withChunk(png, "eXIf", make([]byte, maxMetadata+1))},
		{"XMP data of a PNG", "iTXt", withChunk(png, "iTXt", xmp(32<<20))},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Inspect(c.file)
			require.ErrorIs(t, err, ErrImage)
			require.ErrorContains(t, err, c.text)
		})
	}
	for name, file := range map[string][]byte{
		"ICC profile":        withSegments(jpg, 0xe2, repeated(200, icc)...),
		"comments":           withSegments(jpg, 0xfe, repeated(100000, nil)...),
		"text of a PNG":      withChunk(png, "tEXt", make([]byte, 8<<20)),
		"EXIF data, as much": withSegments(jpg, mAPP1, repeated(maxMetadata/large-1, exif)...),
		"XMP data, as much":  withChunk(png, "iTXt", xmp(maxMetadata-100)),
	} {
		_, _, err := process(processorOf(t, "llava-56"), file)
		require.NoError(t, err, name)
	}
}

// looks counts how often Fill looks at its context.
func looks(t *testing.T, name string) (looks int, stored int) {
	file := readImage(t, name)
	f, err := parse(file)
	require.NoError(t, err)
	p := processorOf(t, "llava-56")
	l, it, err := process(p, file)
	require.NoError(t, err)
	const plenty = 1 << 30
	ctx := &ending{Context: t.Context(), looks: plenty}
	require.NoError(t, p.Fill(ctx, file, l, func(key string) []byte { return tensorOf(it, key).Data }))
	return plenty - ctx.looks, f.size.Y
}

// An image that is turned, or reduced to 8 bits, is gone through once more: looking at
// ctx, too.
func TestTurningEndsWithItsContext(t *testing.T) {
	whole, rows := looks(t, "images/exif-2.jpg")
	turned, _ := looks(t, "images/exif-6.jpg")
	require.GreaterOrEqual(t, turned, whole+rows/2)
	gray, _ := looks(t, "images/gray.png")
	deep, rows := looks(t, "images/gray-16bit.png")
	require.GreaterOrEqual(t, deep, gray+rows/2)
}
