package disk

import (
	"bytes"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/tier"
)

// goldenObject is that of testdata/native.hex.
var goldenObject = tier.Object{
	Key: tier.Key{Space: "llava-1.5-7b@a1b2", Name: "4c1e93d5b9d1f6a0"}, Size: 5, Parent: "0f", Tenant: "team",
	Cost: 12345678,
	Note: []byte("float16[2]"),
}

// TestNativeGolden: the bytes of a file never change, since roots outlive programs.
func TestNativeGolden(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "native.hex"))
	require.NoError(t, err)
	want, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	require.NoError(t, err)
	file, err := Native{}.AppendHead(nil, goldenObject, crc32.Checksum([]byte("bytes"), castagnoli))
	require.NoError(t, err)
	file = append(file, "bytes"...)
	require.Equal(t, hex.Dump(want), hex.Dump(file))

	path, err := Native{}.Path(goldenObject.Key)
	require.NoError(t, err)
	require.Equal(t, "h-4097243fd6c011d6b30e406100317491da23c8176a8f5dec6c2e3e19bddd6aa5/72/72a51a7cd2e301272d438c27393cdf532b94ac59d5e3d955d89fb9afed2e41fd", path)
	head, err := Native{}.ParseHead(path, bytes.NewReader(want), int64(len(want)))
	require.NoError(t, err)
	require.Equal(t, goldenObject, head.Object)
}

func TestNativePaths(t *testing.T) {
	for space, folder := range map[string]string{
		"":                       "s-",
		"a.B_c-9":                "s-a.B_c-9",
		"..":                     "s-..",
		strings.Repeat("x", 100): "s-" + strings.Repeat("x", 100),
		strings.Repeat("x", 101): "h-c675a2e604b0cd1229c036e3ce0c87422980a245e295bbc605a507a2299752db",
		"a/b":                    "h-c14cddc033f64b9dea80ea675cf280a015e672516090a5626781153dc68fea11",
		"\u00e4":                 "h-33e6d73fee82904c8d7afb78de1154d1e8dc2a0edb08120e63df5b9385c2d9cc",
	} {
		p, err := Native{}.Path(tier.Key{Space: space, Name: "abc"})
		require.NoError(t, err)
		require.True(t, fs.ValidPath(p))
		require.True(t, nativePath(p), p)
		const name = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
		require.Equal(t, folder+"/ba/"+name, p)
	}
	_, err := Native{}.Path(tier.Key{Space: "a"})
	require.ErrorIs(t, err, fs.ErrInvalid)
	for _, p := range []string{"", "a", "s-/ab", ".ringcache/lock", "s-a/ba/" + strings.Repeat("b", 64),
		"s-a/bb/" + strings.Repeat("B", 64), "s-a/bb/" + strings.Repeat("b", 63),
		"s-a/bb/c/" + strings.Repeat("b", 62)} {
		_, err := Native{}.ParseHead(p, bytes.NewReader(nil), 0)
		require.ErrorIs(t, err, fs.ErrInvalid, p)
		require.NotErrorIs(t, err, tier.ErrCorrupt, p)
	}
}

func drawObject(t *rapid.T) tier.Object {
	text := func(label string, least, most int) string {
		b := rapid.SliceOfN(rapid.Byte(), least, most).Draw(t, label)
		return string(bytes.ReplaceAll(b, []byte{0}, []byte{1}))
	}
	o := tier.Object{
		Key:    tier.Key{Space: text("space", 0, tier.MaxSpace), Name: text("name", 1, tier.MaxName)},
		Parent: text("parent", 0, tier.MaxName), Tenant: text("tenant", 0, tier.MaxTenant),
		Size: int64(rapid.IntRange(0, 1000).Draw(t, "size")), Cost: time.Duration(rapid.Int64Min(0).Draw(t, "cost")),
		Note: rapid.SliceOfN(rapid.Byte(), 0, tier.MaxNote).Draw(t, "note"),
	}
	if len(o.Note) == 0 {
		o.Note = nil
	}
	if o.Parent == o.Name {
		o.Parent = ""
	}
	return o
}

func TestNativeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawObject(t)
		sum := rapid.Uint32().Draw(t, "sum")
		path, err := Native{}.Path(o.Key)
		require.NoError(t, err)
		head, err := Native{}.AppendHead([]byte("in front"), o, sum)
		require.NoError(t, err)
		head = head[len("in front"):]
		require.Zero(t, len(head)%nativeAlign)
		require.LessOrEqual(t, len(head), nativeMax)
		other, err := Native{}.AppendHead(nil, o, sum+1)
		require.NoError(t, err)
		require.Len(t, other, len(head))
		file := append(head, make([]byte, o.Size)...)
		got, err := Native{}.ParseHead(path, bytes.NewReader(file), int64(len(file)))
		require.NoError(t, err)
		require.Equal(t, Head{Object: o, Length: int64(len(head)), Sum: sum, HasSum: true}, got)
	})
}

func TestNativeLargestHead(t *testing.T) {
	o := tier.Object{
		Key:    tier.Key{Space: strings.Repeat("s", tier.MaxSpace), Name: strings.Repeat("n", tier.MaxName)},
		Parent: strings.Repeat("p", tier.MaxName), Tenant: strings.Repeat("t", tier.MaxTenant),
		Note: make([]byte, tier.MaxNote), Cost: math.MaxInt64,
	}
	head, err := Native{}.AppendHead(nil, o, 0)
	require.NoError(t, err)
	require.Len(t, head, nativeMax)
	path, err := Native{}.Path(o.Key)
	require.NoError(t, err)
	got, err := Native{}.ParseHead(path, bytes.NewReader(head), int64(len(head)))
	require.NoError(t, err)
	require.Equal(t, o, got.Object)
}

// FuzzNativeParse: a head is an object or an error, and one that is an object is the only way to write it.
func FuzzNativeParse(f *testing.F) {
	path, err := Native{}.Path(goldenObject.Key)
	require.NoError(f, err)
	head, err := Native{}.AppendHead(nil, goldenObject, 7)
	require.NoError(f, err)
	f.Add(append(head, "bytes"...), true)
	f.Add(head, true)
	f.Add([]byte(nativeMagic), false)
	f.Fuzz(func(t *testing.T, file []byte, fix bool) {
		if fix && len(file) >= nativeAlign { // so that the fuzzer gets past the checksum
			n := int(file[nativeLengthAt]) | int(file[nativeLengthAt+1])<<8
			if n >= nativeAlign && n <= len(file) {
				c := crc32.Checksum(file[:n-nativeCheck], castagnoli)
				copy(file[n-nativeCheck:], []byte{byte(c), byte(c >> 8), byte(c >> 16), byte(c >> 24)})
			}
		}
		h, err := Native{}.ParseHead(path, bytes.NewReader(file), int64(len(file)))
		if err != nil {
			require.ErrorIs(t, err, tier.ErrCorrupt)
			return
		}
		require.NoError(t, h.Object.Validate())
		require.Equal(t, int64(len(file)), h.Length+h.Object.Size)
		again, err := Native{}.AppendHead(nil, h.Object, h.Sum)
		require.NoError(t, err)
		require.Equal(t, file[:h.Length], again)
	})
}

// TestNativeFlips: no bit of a head can change without notice.
func TestNativeFlips(t *testing.T) {
	path, err := Native{}.Path(goldenObject.Key)
	require.NoError(t, err)
	head, err := Native{}.AppendHead(nil, goldenObject, 7)
	require.NoError(t, err)
	file := append(head, "bytes"...)
	for bit := range 8 * len(head) {
		file[bit/8] ^= 1 << (bit % 8)
		_, err := Native{}.ParseHead(path, bytes.NewReader(file), int64(len(file)))
		require.ErrorIs(t, err, tier.ErrCorrupt, "bit %d", bit)
		file[bit/8] ^= 1 << (bit % 8)
	}
	for n := range len(file) + 1 {
		for _, size := range []int{n, len(file)} { // cut before, and after its size was taken
			_, err := Native{}.ParseHead(path, bytes.NewReader(file[:n]), int64(size))
			if n < len(head) || size != len(file) {
				require.ErrorIs(t, err, tier.ErrCorrupt, "%d of %d bytes", n, size)
			}
		}
	}
	_, err = Native{}.ParseHead(path, bytes.NewReader(append(file, 0)), int64(len(file)+1))
	require.ErrorIs(t, err, tier.ErrCorrupt)
}

type failingReader struct{}

var errDevice = errors.New("the device has failed")

func (failingReader) ReadAt([]byte, int64) (int, error) { return 0, errDevice }

// An error of the device is no damage.
func TestNativeReadError(t *testing.T) {
	path, err := Native{}.Path(goldenObject.Key)
	require.NoError(t, err)
	_, err = Native{}.ParseHead(path, failingReader{}, 1000)
	require.ErrorIs(t, err, errDevice)
	require.NotErrorIs(t, err, tier.ErrCorrupt)
}
