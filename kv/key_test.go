package kv

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// name draws texts of which some are refused.
func name() *rapid.Generator[string] {
	return rapid.StringOfN(rapid.SampledFrom([]rune("ab/-SEP@%. é\\0")), 0, 12, -1)
}

func objectKeys() *rapid.Generator[ObjectKey] {
	return rapid.Custom(func(t *rapid.T) ObjectKey {
		return ObjectKey{
			Hash: rapid.SliceOfN(rapid.Byte(), 0, 65).Draw(t, "hash"), Model: name().Draw(t, "model"), Rank: Rank(rapid.Uint32().Draw(t, "rank")),
			Group: rapid.Uint32().Draw(t, "group"), Salt: name().Draw(t, "salt"),
		}
	})
}

// TestObjectKeysRoundTrip: what is valid has a text that is read as the same key, and a file as well unless
// its model has -SEP-. What is not valid has none.
func TestObjectKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := objectKeys().Draw(t, "key")
		text, err := k.AppendText([]byte("front:"))
		name, fileErr := k.FileName()
		if k.Validate() != nil {
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorIs(t, fileErr, fs.ErrInvalid)
			return
		}
		require.NoError(t, err)
		back, err := ParseObjectKey(strings.TrimPrefix(string(text), "front:"))
		require.NoError(t, err)
		require.Equal(t, k, back)
		if fileErr == nil {
			back, err = ParseFileName(name)
			require.NoError(t, err)
			require.Equal(t, k, back)
		} else {
			require.True(t, strings.Contains(k.Model, "-SEP") || len(k.Model)+len(k.Salt) > 50, "%v", fileErr)
		}
	})
}

// TestFilesOfTwoKeysDiffer: two models never have the same file.
func TestFilesOfTwoKeysDiffer(t *testing.T) {
	models := rapid.StringOfN(rapid.SampledFrom([]rune("/-SEP")), 1, 10, -1)
	rapid.Check(t, func(t *rapid.T) {
		a := ObjectKey{Hash: []byte{1}, Model: models.Draw(t, "a")}
		b := ObjectKey{Hash: []byte{1}, Model: models.Draw(t, "b")}
		one, err := a.FileName()
		other, err2 := b.FileName()
		if err == nil && err2 == nil {
			require.Equal(t, a.Model == b.Model, one == other)
		}
	})
}

func TestEngineKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := EngineKey{
			Model: name().Draw(t, "model"), World: rapid.IntRange(-1, 20).Draw(t, "world"), Worker: rapid.IntRange(-1, 20).Draw(t, "worker"),
			Hash:  rapid.SampledFrom([]string{"0", "1", "-f", "deadbeef", "ffffffffffffffff", "-0", "00", "", "F", "0x1", "-"}).Draw(t, "hash"),
			DType: rapid.SampledFrom([]string{"float16", "bfloat16", "float32", "float8_e4m3fn", "half"}).Draw(t, "dtype"),
		}
		if rapid.Bool().Draw(t, "layered") {
			k.Layered, k.Layer = true, rapid.IntRange(-1, 100).Draw(t, "layer")
		}
		for range rapid.IntRange(0, 3).Draw(t, "tags") {
			k.Tags = append(k.Tags, Tag{name().Draw(t, "name"), name().Draw(t, "value")})
		}
		text, err := k.AppendText(nil)
		if k.Validate() != nil {
			require.ErrorIs(t, err, fs.ErrInvalid)
			return
		}
		require.NoError(t, err)
		back, err := ParseEngineKey(string(text))
		require.NoError(t, err)
		require.Equal(t, k, back)
	})
}

func TestRefusedKeys(t *testing.T) {
	for text, want := range map[string]string{
		"m@01000100@0":                                "3 fields",
		"m@01000100@0@ff@s@t":                         "6 fields",
		"@01000100@0@ff":                              "name is empty",
		"m@1000100@0@ff":                              "rank",
		"m@0x01000100@0@ff":                           "rank",
		"m@100000000@0@ff":                            "rank",
		"m@0100010A@0@ff":                             "rank",
		"m@+1000100@0@ff":                             "rank",
		"m@01000100@@ff":                              "group",
		"m@01000100@00@ff":                            "group",
		"m@01000100@A@ff":                             "group",
		"m@01000100@100000000@ff":                     "group",
		"m@01000100@0@":                               "hash of 0 bytes",
		"m@01000100@0@f":                              "hash",
		"m@01000100@0@FF":                             "hash",
		"m@01000100@0@ff@":                            "no salt is behind it",
		"m@01000100@0@ff@a/b":                         "salt",
		"m@01000100@0@ff@a\\b":                        "salt",
		"m@01000100@0@ff@\x00":                        "salt",
		"m@01000100@0@ff@\xff":                        "UTF-8",
		"\xff@01000100@0@ff":                          "UTF-8",
		"m\x00@01000100@0@ff":                         "model",
		strings.Repeat("m", 513) + "@01000100@0@ff":   "513 bytes",
		"m@01000100@0@ff@" + strings.Repeat("é", 129): "129 characters",
		"m@01000100@0@" + strings.Repeat("ff", 65):    "65 bytes",
	} {
		_, err := ParseObjectKey(text)
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", text)
		require.ErrorContains(t, err, want, "%q", text)
	}
	for text, want := range map[string]string{
		"m@0x01000100@0@ff":                                ".data",
		"m@01000100@0@ff.data":                             "0x",
		"a/b@0x01000100@0@ff.data":                         "another name",
		strings.Repeat("m", 240) + "@0x01000100@0@ff.data": "another name",
	} {
		_, err := ParseFileName(text)
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", text)
		require.ErrorContains(t, err, want, "%q", text)
	}
	for text, want := range map[string]string{
		"m@1@0@ff":                 "4 or more fields",
		"m@01@0@ff@half":           "world",
		"m@1@-1@ff@half":           "worker",
		"m@65537@0@ff@half":        "world",
		"m@1@0@0ff@half":           "hash",
		"m@1@0@-0@half":            "hash",
		"m@1@0@ff@float16":         `dtype "float16"`,
		"m@1@0@ff@half@01":         "layer",
		"m@1@0@ff@half@2147483648": "layer",
		"m@1@0@ff@half@x":          "no layer",
		"m@1@0@ff@half@a%b@3":      "no layer",
		"m@1@0@ff@half@a%b@a%c":    "twice",
		"m@1@0@ff@half@a%" + strings.Repeat("b", 1025): "1024 bytes",
		"m@1@0@ff@half" + strings.Repeat("@a%b", 66):   "70 is the most",
		"m@1@0@" + strings.Repeat("f", 65) + "@half":   "64 hexadecimal",
	} {
		_, err := ParseEngineKey(text)
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", text)
		require.ErrorContains(t, err, want, "%q", text)
	}
	require.ErrorIs(t, EngineKey{Model: "m", World: 1, Hash: "1", DType: "bool", Layer: 1}.Validate(), fs.ErrInvalid)
	for _, a := range [][4]int{{0, 0, 1, 0}, {256, 0, 1, 0}, {2, 2, 1, 0}, {2, -1, 1, 0}, {2, 1, 0, 0}, {2, 1, 1, 1}} {
		_, err := NewRank(a[0], a[1], a[2], a[3])
		require.ErrorIs(t, err, fs.ErrInvalid, "%v", a)
	}
}

// FuzzParse: what a parser takes is printed as it was, and what it refuses is no key's text.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"org/model@01000100@0@a0a1", "m@02010201@b@00@tenant A.1", "a-SEP-b@0x01000100@0@ff@s.data", "m@1@0@-1234@half@3@a%b@c%",
		"m@1@0@0@fp8_e5m2fnuz@%", "@@@@", "m@1@0@ff@half@\u0663",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := ParseObjectKey(text); err == nil {
			again, err := k.AppendText(nil)
			require.NoError(t, err)
			require.Equal(t, text, string(again))
		} else {
			require.ErrorIs(t, err, fs.ErrInvalid)
		}
		if k, err := ParseFileName(text); err == nil {
			again, err := k.FileName()
			require.NoError(t, err)
			require.Equal(t, text, again)
		} else {
			require.ErrorIs(t, err, fs.ErrInvalid)
		}
		if k, err := ParseEngineKey(text); err == nil {
			again, err := k.AppendText(nil)
			require.NoError(t, err)
			require.Equal(t, text, string(again))
		} else {
			require.ErrorIs(t, err, fs.ErrInvalid)
		}
	})
}

// FuzzChain: any bytes are tokens or are refused, and a chain that is continued in any place is the one at once.
func FuzzChain(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3}, uint8(4))
	f.Add([]byte{0, 0, 1}, uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		for _, s := range schemes() {
			h := newHasher(t, s)
			chain, once := h.NewChain(), h.NewChain()
			_ = chain.Set(data[:min(int(cut), len(data))])
			err := chain.Set(data)
			require.Equal(t, len(data)%4 == 0, err == nil)
			if err == nil {
				require.NoError(t, once.Set(data))
				require.Equal(t, once.texts(), chain.texts())
			}
		}
	})
}
