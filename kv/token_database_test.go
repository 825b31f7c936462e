package kv

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// worker is the worker of testdata/token_database.py.
func worker() EngineKey { return EngineKey{Model: "org/m", World: 2, Worker: 1, DType: "bfloat16"} }

func newDatabase(t testing.TB, s Scheme, separator ...int64) *TokenDatabase {
	t.Helper()
	h := newHasher(t, s)
	d, err := NewTokenDatabase(h, worker())
	if len(separator) > 0 {
		d, err = NewSegmentDatabase(h, worker(), separator)
	}
	require.NoError(t, err)
	return d
}

// goldenChunk is start, end and key.
type goldenChunk struct {
	start, end int
	key        string
}

func (c *goldenChunk) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&c.start, &c.end, &c.key})
}

func goldenChunks(t testing.TB, chunks []TokenChunk) []goldenChunk {
	t.Helper()
	out := []goldenChunk{}
	for _, c := range chunks {
		text, err := c.Key.AppendText(nil)
		require.NoError(t, err)
		out = append(out, goldenChunk{c.Start, c.End, string(text)})
	}
	return out
}

func TestGoldenTokenDatabases(t *testing.T) {
	raw, err := os.ReadFile("testdata/token_database.json")
	require.NoError(t, err)
	var golden struct {
		Rows []struct {
			Algorithm         Algorithm
			Chunk, Skip       int
			Tail, MLA, Failed bool
			Separator, Tokens []int64
			Options           string
			Chunks            []goldenChunk
		}
	}
	require.NoError(t, json.Unmarshal(raw, &golden))
	require.Greater(t, len(golden.Rows), 100)
	for _, row := range golden.Rows {
		about := fmt.Sprintf("%+v", row)
		h := newHasher(t, Scheme{
			Algorithm: row.Algorithm, ChunkTokens: row.Chunk, Seed: "0", Legacy: true, KeepTail: row.Tail,
		})
		key := worker()
		if row.MLA {
			key.World = 1
		}
		d, err := NewTokenDatabase(h, key)
		if len(row.Separator) > 0 {
			d, err = NewSegmentDatabase(h, key, row.Separator)
		}
		require.NoError(t, err)
		tags, err := ParseTags([]byte(row.Options))
		require.NoError(t, err, about)
		chunks, err := d.Chunks(row.Tokens, row.Skip, tags)
		// LMCache gives up behind a request shorter than the separator, whose one segment it has made by then.
		if row.Failed && len(row.Chunks) == 0 && !(len(row.Separator) > len(row.Tokens) && row.Skip < len(row.Tokens)) {
			require.ErrorIs(t, err, fs.ErrInvalid, about)
			continue
		}
		require.NoError(t, err, about)
		got := goldenChunks(t, chunks)
		if slices.Equal(row.Separator, []int64{7, 7}) { // See docs/decisions.md, "Segments are where their tokens are".
			require.Equal(t, []goldenChunk{
				{0, 1, row.Chunks[0].key},
				{3, 3, row.Chunks[1].key},
				{4, 6, row.Chunks[2].key},
			}, got)
			continue
		}
		require.Equal(t, append([]goldenChunk{}, row.Chunks...), got, about)

		hashes, lengths := []string{}, []int{}
		for _, c := range chunks {
			hashes, lengths = append(hashes, c.Key.Hash), append(lengths, c.End-c.Start)
		}
		again, err := d.Hashed(hashes, lengths, tags)
		require.NoError(t, err)
		require.Len(t, again, len(chunks))
		for i := range again {
			require.Equal(t, chunks[i].Key, again[i].Key)
			require.Equal(t, chunks[i].End-chunks[i].Start, again[i].End-again[i].Start)
			if len(row.Separator) == 0 {
				require.Equal(t, chunks[i].Start-row.Skip, again[i].Start)
			}
		}
	}
}

func TestRefusedOfTokenDatabases(t *testing.T) {
	legacy := Scheme{Algorithm: Builtin, Seed: "0", Legacy: true, ChunkTokens: 4}
	d := newDatabase(t, legacy)
	segments := newDatabase(t, legacy, 7, 8)
	big := []int64{1 << 32}
	many := make([]Tag, maxTags+1)
	for name, call := range map[string]func() error{
		"multiprocess hashes": func() error {
			_, err := NewTokenDatabase(newHasher(t, Scheme{}), worker())
			return err
		},
		"no model": func() error {
			_, err := NewTokenDatabase(d.hasher, EngineKey{World: 1, DType: "bfloat16"})
			return err
		},
		"no separator": func() error { _, err := NewSegmentDatabase(d.hasher, worker(), nil); return err },
		"separator":    func() error { _, err := NewSegmentDatabase(d.hasher, worker(), big); return err },
		"segments of nobody": func() error {
			_, err := NewSegmentDatabase(d.hasher, EngineKey{}, []int64{1})
			return err
		},
		"skip in a chunk":    func() error { _, err := d.Chunks(make([]int64, 9), 3, nil); return err },
		"negative skip":      func() error { _, err := d.Chunks(make([]int64, 9), -4, nil); return err },
		"skipped segments":   func() error { _, err := segments.Chunks([]int64{1, 2}, 2, nil); return err },
		"negative segments":  func() error { _, err := segments.Chunks([]int64{1, 2}, -1, nil); return err },
		"token":              func() error { _, err := d.Chunks(big, 0, nil); return err },
		"token of a segment": func() error { _, err := segments.Chunks(big, 0, nil); return err },
		"tags":               func() error { _, err := d.Chunks(nil, 0, many); return err },
		"tags of hashes":     func() error { _, err := d.Hashed(nil, nil, many); return err },
		"other lengths":      func() error { _, err := d.Hashed([]string{"1"}, nil, nil); return err },
		"no number":          func() error { _, err := d.Hashed([]string{"x"}, []int{1}, nil); return err },
		"negative length":    func() error { _, err := d.Hashed([]string{"1"}, []int{-1}, nil); return err },
		"long": func() error {
			_, err := d.Hashed([]string{"1", "2"}, []int{maxLength, 1}, nil)
			return err
		},
	} {
		require.ErrorIs(t, call(), fs.ErrInvalid, name)
	}
	chunks, err := d.Chunks(make([]int64, 9), 400, nil)
	require.NoError(t, err)
	require.Empty(t, chunks, "a mask may be longer than the tokens")
}

func TestParseTags(t *testing.T) {
	for options, want := range map[string][]Tag{
		``:   nil,
		`{}`: nil,
		`{"lmcache.skip_save": true, "lmcache.tag.b": "2", "x": {"lmcache.tag.no": [1]}, "lmcache.tag.a": "é%1"}`: {
			{"b", "2"}, {"a", "é%1"},
		},
		`{"lmcache.tag.a": 1, "lmcache.tag.b": 1e+16, "lmcache.tag.c": null, "lmcache.tag.d": false, ` +
			`"lmcache.tag.a": true}`: {{"a", "True"}, {"b", "1e+16"}, {"c", "None"}, {"d", "False"}},
	} {
		got, err := ParseTags([]byte(options))
		require.NoError(t, err, options)
		require.Equal(t, want, got, options)
	}
	var many strings.Builder
	many.WriteString(`{"lmcache.tag.x": 1`)
	for i := range maxTags {
		fmt.Fprintf(&many, `, "lmcache.tag.%d": 1`, i)
	}
	many.WriteString("}")
	for _, options := range []string{
		`[]`, `"x"`, `{`, `{"a"`, `{"a":}`, `{} {}`, `{}}`, `{}]`,
		`{"lmcache.tag.a": []}`, `{"lmcache.tag.a": {}}`, `{"lmcache.tag.a": "b@c"}`,
		`{"lmcache.tag.a%": "b"}`, `{"lmcache.tag.a": NaN}`, `{1: 2}`, many.String(),
	} {
		_, err := ParseTags([]byte(options))
		require.ErrorIs(t, err, fs.ErrInvalid, options)
	}
}

// TestPeersThatDisagree: whoever hashes otherwise is found, and what PYTHONHASHSEED it has is said if it is a
// usual one.
func TestPeersThatDisagree(t *testing.T) {
	tokens := []int64{1, 2, 3, 4}
	schemes := []Scheme{
		{Algorithm: Builtin, Seed: "0"}, {Algorithm: Builtin, Seed: "42"},
		{Algorithm: SHA256CBOR}, {Algorithm: SHA256CBOR, Seed: "0"},
		{Algorithm: XXHashCBOR, Seed: "random"},
		{Algorithm: SHA256CBOR, Seed: "nobody else has it"}, {Algorithm: Builtin, Seed: "987654"},
	}
	for i := range schemes {
		schemes[i].Legacy, schemes[i].ChunkTokens = true, len(tokens)
	}
	for _, own := range schemes {
		h := newHasher(t, own)
		for _, their := range schemes {
			chunks, err := newDatabase(t, their).Chunks(tokens, 0, nil)
			require.NoError(t, err)
			err = h.Agree(chunks[0].Key.Hash, tokens)
			switch {
			case own == their:
				require.NoError(t, err)
			case len(their.Seed) > 6 || their.Seed == "987654":
				require.ErrorContains(t, err, "is PYTHONHASHSEED not set there")
			case own.Algorithm == Builtin || strings.HasPrefix(chunks[0].Key.Hash, "-"):
				require.Error(t, err) // its form may have told it
			default:
				require.ErrorContains(t, err, their.text())
			}
		}
	}
	builtin, sha := newHasher(t, schemes[0]), newHasher(t, schemes[2])
	require.NoError(t, builtin.Agree("-8000000000000000", nil))
	require.ErrorContains(t, builtin.Agree("8000000000000000", nil), "another algorithm")
	require.NoError(t, sha.Agree("ffffffffffffffff", nil))
	require.ErrorContains(t, sha.Agree("-1", nil), "negative")
	require.ErrorContains(t, sha.Agree("10000000000000000", nil), "more than 64 bits")
	require.ErrorIs(t, sha.Agree("x", nil), fs.ErrInvalid)
	require.ErrorIs(t, sha.Agree("1", []int64{-1}), fs.ErrInvalid)
	require.ErrorIs(t, newHasher(t, Scheme{}).Agree("1", nil), fs.ErrInvalid)
}
