package memory

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

func noteObjects() []tier.Object {
	long := func(n int) string { return strings.Repeat("é", n/2) }
	return []tier.Object{
		{Key: tier.Key{Name: "n"}},
		{Key: tier.Key{Space: "s", Name: "n"}, Size: 5, Parent: "p", Tenant: "t", Cost: 7, Note: []byte{0, 1}},
		{Key: tier.Key{Space: "\xff", Name: "\xfe\x01"}, Parent: "ok"},
		{Key: tier.Key{Space: "s", Name: "n"}, Parent: "\xfe"},
		{Key: tier.Key{Space: "s", Name: strings.Repeat("a9", 32)}, Parent: strings.Repeat("0f", 32)},
		{
			Key: tier.Key{Space: long(254), Name: long(tier.MaxName)}, Size: 1<<63 - 1, Parent: long(tier.MaxName - 2), Tenant: long(254),
			Cost: time.Duration(1<<63 - 1), Note: make([]byte, tier.MaxNote),
		},
	}
}

func TestKeyTexts(t *testing.T) {
	seen := map[string]tier.Key{}
	for _, k := range []tier.Key{
		{Name: "a"}, {Space: "a", Name: "b"}, {Space: "", Name: "ab"}, {Space: "ab", Name: "c"}, {Space: "a", Name: "bc"},
		{Space: "\x80", Name: "a"}, {Space: "a", Name: "\x80"}, {Name: "\x80"}, {Name: "\u0080"}, {Space: "a", Name: "\u00e9"}, {Space: "a", Name: "\xe9"},
		{Space: "a", Name: "0123456789abcdef"}, {Name: "0123456789abcdef"}, {Space: "a", Name: "0123456789ABCDEF"}, {Space: "a", Name: "0123456789abcde"},
		{Space: "a", Name: "0123456789abcdef0"}, {Space: "a", Name: "00000000000000ff"}, {Space: "a", Name: strings.Repeat("f", tier.MaxName)},
	} {
		s := keyText(k)
		require.NotContains(t, seen, s)
		seen[s] = k
		got, ok := parseKey(s)
		require.True(t, ok)
		require.Equal(t, k, got)
	}
	for _, bad := range []string{"", "\x00", "a", "a\x00", "a\x00b\x00c", "a\x00\x00b", "\x00\x00\x01\x02\x03\x04\x05\x06\x07", "\x00lost\x005", "a\x000123456789abcdef"} {
		_, ok := parseKey(bad)
		require.False(t, ok, "%q", bad)
	}
}

func TestParentKeys(t *testing.T) {
	for _, o := range noteObjects() {
		parent, has := o.ParentKey()
		got := parentKey(keyText(o.Key), appendNote(nil, &o))
		if !has {
			require.Empty(t, got)
			continue
		}
		require.Equal(t, keyText(parent), got)
	}
	note := appendNote(nil, &tier.Object{Parent: "p"})
	require.Empty(t, parentKey("\x00lost\x005", note))
}

func FuzzNote(f *testing.F) {
	for _, o := range noteObjects() {
		b := appendNote(nil, &o)
		f.Add(keyText(o.Key), b)
		f.Add(keyText(o.Key), b[:len(b)/2])
		got := tier.Object{Key: o.Key}
		require.True(f, parseNote(b, &got))
		require.Equal(f, o, got)
	}
	f.Fuzz(func(t *testing.T, key string, note []byte) {
		_ = parentKey(key, note)
		if k, ok := parseKey(key); ok {
			require.NoError(t, k.Validate())
			require.Equal(t, key, keyText(k), "one text for each key")
		}
		var o tier.Object
		if parseNote(note, &o) {
			require.Equal(t, note, appendNote(nil, &o), "one note for each object")
		}
	})
}
