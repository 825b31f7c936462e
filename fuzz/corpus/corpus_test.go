package corpus_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/corpus"
)

func TestFamilies(t *testing.T) {
	require.Subset(t, corpus.Families(), []string{
		"ring", "store", "lru", "pair", "chunk", "metadata", "item", "outputs", "sidecar", "check", "agent",
	})
	size := 0
	for _, family := range corpus.Families() {
		n := 0
		for name, args := range corpus.Entries(family) {
			require.NotEmpty(t, args, "%s/%s", family, name)
			for _, a := range args {
				switch a := a.(type) {
				case []byte:
					size += len(a)
				case string:
					size += len(a)
				}
			}
			n++
		}
		require.Positive(t, n, family)
	}
	require.Less(t, size, 100<<10, "bytes in all: small inputs are enough")
	require.Panics(t, func() { corpus.Entries("nothing") })
}

type seeds [][]any

func (s *seeds) Add(args ...any) { *s = append(*s, args) }

func TestAdd(t *testing.T) {
	var s seeds
	corpus.Add(&s, "sidecar")
	require.NotEmpty(t, s)
	require.Len(t, s[0], 6)
	require.IsType(t, uint16(0), s[0][4])
	require.IsType(t, false, s[0][5])
	for range corpus.Entries("sidecar") {
		break // an iteration can end early
	}
}

func TestParse(t *testing.T) {
	args, err := corpus.Parse([]byte("go test fuzz v1\n[]byte(\"a\\x00\\n\")\nstring(\"é\")\nbool(true)\nbool(false)\nuint16(7)\nuint32(8)\nuint64(9)\nint(5)\nbyte('\\x05')\nuint8(4)\n"))
	require.NoError(t, err)
	require.Equal(t, []any{[]byte("a\x00\n"), "é", true, false, uint16(7), uint32(8), uint64(9), 5, byte(5), byte(4)},
		args)
	for _, bad := range []string{"", "go test fuzz v2\n", "go test fuzz v1\n7", "go test fuzz v1\n[]byte(x+1)",
		"go test fuzz v1\nf(", "go test fuzz v1\nfloat64(1)", "go test fuzz v1\nx.y(1)"} {
		_, err := corpus.Parse([]byte(bad))
		require.Error(t, err, bad)
	}
}
