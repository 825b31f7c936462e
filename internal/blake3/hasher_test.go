package blake3

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	zeebo "github.com/zeebo/blake3"
	"pgregory.net/rapid"
)

// forms are both ways of hashing, whatever this machine prefers.
var forms = map[string]bool{"trees": true, "short": false}

const context = "ringcache test context"

func plainHasher(trees bool) *Hasher { return newHasher(trees, zeebo.New(), plain()) }

func deriveHasher(trees bool, context string) *Hasher {
	return newHasher(trees, zeebo.NewDeriveKey(context), deriveKey(context))
}

// pattern is the input of the vectors of the BLAKE3 project, of any length.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

func hashOf(h *Hasher, parts ...[]byte) string {
	for _, p := range parts {
		n, err := h.Write(p)
		if n != len(p) || err != nil {
			panic("a hash took a part of a write")
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestVectors has the first 32 bytes of the test vectors of the BLAKE3 project (test_vectors.json, CC0).
func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var file struct {
		Context string
		Cases   []struct {
			InputLen  int    `json:"input_len"`
			Hash      string `json:"hash"`
			DeriveKey string `json:"derive_key"`
		}
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	require.Len(t, file.Cases, 22)
	for name, trees := range forms {
		t.Run(name, func(t *testing.T) {
			for _, c := range file.Cases {
				in := pattern(c.InputLen)
				require.Equal(t, c.Hash, hashOf(plainHasher(trees), in), "%d bytes", c.InputLen)
				require.Equal(t, c.DeriveKey, hashOf(deriveHasher(trees, file.Context), in), "%d bytes", c.InputLen)
			}
		})
	}
}

// TestPropertySameAsZeebo writes in parts that end near the borders of blocks, chunks and groups, and asks for the
// sum in between.
func TestPropertySameAsZeebo(t *testing.T) {
	in := pattern(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		theirs, ours := zeebo.New(), plainHasher(true)
		if rapid.Bool().Draw(t, "derive") {
			theirs, ours = zeebo.NewDeriveKey(context), deriveHasher(true, context)
		}
		for left := in; len(left) > 0; {
			unit := rapid.SampledFrom([]int{1, 64, 1024, shortLen, groupLen, parallelLen}).Draw(t, "unit")
			n := unit*rapid.IntRange(0, 3).Draw(t, "units") + rapid.IntRange(-2, 2).Draw(t, "more")
			n = min(max(n, 0), len(left))
			for _, h := range []interface{ Write([]byte) (int, error) }{theirs, ours} {
				_, err := h.Write(left[:n])
				require.NoError(t, err)
			}
			left = left[n:]
			if rapid.Bool().Draw(t, "sum") {
				require.Equal(t, theirs.Sum(nil), ours.Sum(nil))
			}
			if rapid.IntRange(0, 5).Draw(t, "stop") == 0 {
				break
			}
		}
		require.Equal(t, theirs.Sum(nil), ours.Sum(nil))
		theirs.Reset()
		ours.Reset()
		_, err := theirs.Write(in[:3000])
		require.NoError(t, err)
		require.Equal(t, hex.EncodeToString(theirs.Sum(nil)), hashOf(ours, in[:3000]), "after Reset")
	})
}

func TestHasherAppends(t *testing.T) {
	for _, n := range []int{0, shortLen + 1, 3 * groupLen} {
		for _, trees := range forms {
			h := plainHasher(trees)
			sum := hashOf(h, pattern(n))
			got := h.Sum([]byte("kept"))
			require.Equal(t, "kept", string(got[:4]))
			require.Equal(t, sum, hex.EncodeToString(got[4:]))
			require.Equal(t, h.Size(), len(got)-4)
			require.Equal(t, 64, h.BlockSize())
		}
	}
}

// TestNewChooses has the same hash whichever form this machine prefers.
func TestNewChooses(t *testing.T) {
	t.Logf("long streams are hashed as trees: %v", treesAreFaster)
	in := pattern(100_000)
	require.Equal(t, hashOf(plainHasher(true), in), hashOf(New(), in))
	require.Equal(t, hashOf(deriveHasher(false, context), in), hashOf(NewDeriveKey(context), in))
}

func FuzzWrites(f *testing.F) {
	f.Add(uint32(70_000), uint32(100), uint32(16<<10))
	f.Add(uint32(1<<20), uint32(600<<10), uint32(1<<20))
	f.Add(uint32(1024), uint32(1024), uint32(1024))
	in := pattern(2 << 20)
	f.Fuzz(func(t *testing.T, total, one, two uint32) {
		b := in[:total%uint32(len(in)+1)]
		i := min(int(one), len(b))
		j := max(i, min(int(two), len(b)))
		want := zeebo.Sum256(b)
		got, err := hex.DecodeString(hashOf(plainHasher(true), b[:i], b[i:j], b[j:]))
		if err != nil || !bytes.Equal(want[:], got) {
			t.Fatalf("%x, want %x", got, want)
		}
	})
}
