package mmhash

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

// TestGoldenHashes compares the exact stream of every case, and its digest by
// every algorithm that the release has.
func TestGoldenHashes(t *testing.T) {
	for _, f := range goldentest.Files(t, "hasher") {
		var data struct {
			Algorithms    []string
			AlgorithmFrom string `json:"algorithm_from"`
			KwargsSorted  bool   `json:"kwargs_sorted"`
			Cases         []goldenCase
		}
		f.Decode(t, &data)
		require.NotEmpty(t, data.Cases)
		for _, release := range f.Releases {
			t.Run(release, func(t *testing.T) {
				g, err := pycompat.Lookup(release)
				require.NoError(t, err)
				require.Equal(t, data.KwargsSorted, g.Hash.Sorted)
				require.Equal(t, len(data.Algorithms) > 1, g.Hash.Algorithms)
				var n struct{ streams, digests, raise, refused, absent, inexpressible int }
				for _, c := range data.Cases {
					if inexpressible[c.Name] != "" {
						require.NotEmpty(t, c.Err, c.Name)
						n.inexpressible++
						continue
					}
					if c.BuildErr != "" {
						n.absent++
						continue
					}
					args, err := goldenArgs(t, c, g)
					var stream bytes.Buffer
					if err == nil {
						err = WriteStream(&stream, g, args...)
					}
					if c.Err != "" || c.DigestLen != 0 {
						require.Error(t, err, "%s: Python says %s", c.Name, c.Err)
						require.True(t, errors.Is(err, ErrUnsupported) || errors.Is(err, errInvalid), c.Name)
						if c.Err != "" {
							n.raise++
						} else {
							n.refused++
						}
						continue
					}
					require.NoError(t, err, c.Name)
					if c.Stream != nil {
						sameBytes(t, c, stream.Bytes())
						n.streams++
					}
					for _, name := range data.Algorithms {
						h, err := hexOrError(Options{g, name}, args...)
						require.NoError(t, err, c.Name)
						require.Equal(t, map[string]string{"blake3": c.BLAKE3, "sha256": c.SHA256, "sha512": c.SHA512}[name], h, "%s by %s", c.Name, name)
						n.digests++
					}
				}
				require.Equal(t, len(data.Cases), max(n.streams, n.digests/len(data.Algorithms))+n.raise+n.refused+n.absent+n.inexpressible)
				t.Logf("%s: %d cases: %d streams, %d digests, %d raise on both sides, %d not reproducible and refused, "+
					"%d that PIL can't make, %d %s", f.Name, len(data.Cases), n.streams, n.digests, n.raise, n.refused, n.absent,
					n.inexpressible, inexpressible["t_requires_grad"])
			})
		}
	}
}

func sameBytes(t *testing.T, c goldenCase, got []byte) {
	t.Helper()
	require.Len(t, got, c.StreamLen, c.Name)
	var text string
	if json.Unmarshal(c.Stream, &text) == nil {
		require.Equal(t, text, hex.EncodeToString(got), c.Name)
		return
	}
	var long struct {
		Len    int
		SHA256 string
	}
	require.NoError(t, json.Unmarshal(c.Stream, &long))
	require.Len(t, got, long.Len, c.Name)
	sum := sha256.Sum256(got)
	require.Equal(t, long.SHA256, hex.EncodeToString(sum[:]), c.Name)
}
