package wire

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

// pair is a map's key with its value, so that a test can write them in any order, and twice.
type pair struct {
	key   any
	value any
}

// rest is written by itself in place of pairs.
type m []pair

func (v m) EncodeMsgpack(e *msgpack.Encoder) error {
	if err := e.EncodeMapLen(len(v)); err != nil {
		return err
	}
	for _, p := range v {
		if err := e.EncodeMulti(p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}

func pack(t require.TestingT, v any) []byte {
	var b bytes.Buffer
	e := msgpack.NewEncoder(&b)
	e.UseCompactInts(true)
	require.NoError(t, e.Encode(v))
	return b.Bytes()
}

type list = []any

var (
	notUTF8 = "a\xffb"
	pin     = m{{"id", 7}, {"op", "pin"}, {"lease", "l"}, {"space", "s"}, {"names", list{"a"}}}
	reserve = m{{"id", 7}, {"op", "reserve"}, {"lease", "l"}, {"space", "s"}}
	hello   = m{{"id", 7}, {"op", "hello"}, {"version", Version}, {"session", "12345678"}, {"client", "c"}}
)

// with returns a map with more pairs, which replace those of the same key.
func (v m) with(more ...pair) m {
	out := m{}
	for _, p := range v {
		replaced := false
		for _, q := range more {
			replaced = replaced || p.key == q.key
		}
		if !replaced {
			out = append(out, p)
		}
	}
	return append(out, more...)
}

func (v m) without(key string) m {
	out := m{}
	for _, p := range v {
		if p.key != key {
			out = append(out, p)
		}
	}
	return out
}

func objects(o ...any) m { return reserve.with(pair{"objects", o}) }

func many(n int) list {
	out := make(list, n)
	for i := range out {
		out[i] = "x"
	}
	return out
}

func TestGoodRequests(t *testing.T) {
	for name, v := range map[string]m{
		"hello":            hello,
		"pin":              pin,
		"zero fields":      pin.with(pair{"seconds", 0}, pair{"prefix", false}, pair{"keep", false}, pair{"objects", list{}}, pair{"client", ""}, pair{"version", 0}),
		"most names":       pin.with(pair{"names", many(MaxNames)}),
		"largest integers": pin.with(pair{"id", uint64(math.MaxUint64)}, pair{"seconds", uint32(math.MaxUint32)}),
		"largest sizes":    objects(m{{"name", "a"}, {"size", int64(math.MaxInt64)}, {"cost", int64(math.MaxInt64)}}),
		"empty note":       objects(m{{"name", "a"}, {"note", []byte{}}}),
		"names for items":  pin.with(pair{"names", list{"", strings.Repeat("x", 5000)}}), // what can't be stored is answered one by one
		"longest lease":    pin.with(pair{"lease", strings.Repeat("é", maxLease/2)}),
		"longest session":  hello.with(pair{"session", strings.Repeat("aZ0-_", 20)[:maxSession]}),
		"shortest session": hello.with(pair{"session", strings.Repeat("a", minSession)}),
		"stat":             {{"id", 1}, {"op", "stat"}},
	} {
		t.Run(name, func(t *testing.T) {
			var q Request
			require.NoError(t, DecodeRequest(pack(t, v), &q))
			require.NotZero(t, q.ID)
		})
	}
}

// TestBadRequests: each is refused with a text that names the field, and can be answered where it has an id.
func TestBadRequests(t *testing.T) {
	for name, c := range map[string]struct {
		body any // a map, or raw bytes
		want string
		dead bool // nobody knows the id
	}{
		"nothing":              {[]byte{}, "request: byte 0", true},
		"a text":               {[]byte("\xa1a"), "request: want a map, got a text", true},
		"two documents":        {append(pack(t, pin), 0xc0), "1 bytes follow", true},
		"cut":                  {pack(t, pin)[:20], "request: byte", true},
		"bomb":                 {[]byte("\xdf\xff\xff\xff\xff"), "declares", true},
		"deep":                 {[]byte("\x81\xa2id" + strings.Repeat("\x91", 20) + "\x01"), "nested deeper", true},
		"empty":                {m{}, `request: the key "id" is missing`, true},
		"no id":                {pin.without("id"), `the key "id" is missing`, true},
		"id 0":                 {pin.with(pair{"id", 0}), "request: id: pin needs it", true},
		"negative id":          {pin.with(pair{"id", -1}), "request: id: -1, want 0 or more", true},
		"id a text":            {pin.with(pair{"id", "7"}), "request: id: want an integer, got a text", true},
		"id a float":           {pin.with(pair{"id", 7.0}), "request: id: want an integer, got a float", true},
		"id twice":             {append(pin, pair{"id", 7}), `the key "id" twice`, true},
		"op twice":             {append(pin, pair{"op", "pin"}), `the key "op" twice`, true},
		"names twice":          {append(pin, pair{"names", list{"a"}}), `request: the key "names" twice`, false},
		"no op":                {pin.without("op"), `the key "op" is missing`, false},
		"empty op":             {pin.with(pair{"op", ""}), "request: op: every request needs it", false},
		"unknown op, no id":    {m{{"id", 0}, {"op", "Pin"}}, "request: id: Pin needs it", true},
		"key a number":         {pin.with(pair{1, 1}), "request: want a text as a key, got an integer", false},
		"key bytes":            {m{{[]byte("id"), 7}}, "want a text as a key, got bytes", true},
		"nil":                  {pin.with(pair{"lease", nil}), "request: lease: want a text, got nil", false},
		"text as bytes":        {pin.with(pair{"lease", []byte("l")}), "request: lease: want a text, got bytes", false},
		"text not UTF-8":       {pin.with(pair{"space", notUTF8}), `request: space: "a\xffb" is not UTF-8`, false},
		"names a text":         {pin.with(pair{"names", "a"}), "request: names: want a list, got a text", false},
		"name a number":        {pin.with(pair{"names", list{"a", 1}}), "request: names[1]: want a text, got an integer", false},
		"name not UTF-8":       {pin.with(pair{"names", list{"a", "b", notUTF8}}), "request: names[2]: ", false},
		"too many names":       {pin.with(pair{"names", many(MaxNames + 1)}), "request: names: 1025 of them, the most in one message is 1024", false},
		"too many leases":      {m{{"id", 7}, {"op", "release"}, {"leases", many(MaxNames + 1)}}, "request: leases: 1025 of them", false},
		"too many objects":     {objects(many(MaxNames + 1)...), "request: objects: 1025 of them", false},
		"seconds negative":     {pin.with(pair{"seconds", -5}), "request: seconds: -5, want 0 or more", false},
		"seconds too large":    {pin.with(pair{"seconds", int64(1) << 32}), "request: seconds: 4294967296, the most is 4294967295", false},
		"seconds a float":      {pin.with(pair{"seconds", 1.5}), "request: seconds: want an integer, got a float", false},
		"bool an integer":      {pin.with(pair{"prefix", 1}), "request: prefix: want a bool, got an integer", false},
		"extension":            {pin.with(pair{"prefix", msgpack.RawMessage("\xd4\x01a")}), "request: prefix: want a bool, got an extension", false},
		"time as a text":       {pin.with(pair{"lease", msgpack.RawMessage("\xd6\xffabcd")}), "request: lease: want a text, got an extension", false},
		"object a text":        {objects("a"), "request: objects[0]: want a map, got a text", false},
		"object without name":  {objects(m{{"name", "a"}}, m{}), `request: objects[1]: the key "name" is missing`, false},
		"object's key twice":   {objects(m{{"name", "a"}, {"name", "a"}}), `request: objects[0]: the key "name" twice`, false},
		"size negative":        {objects(m{{"name", "a"}}, m{{"name", "b"}, {"size", -1}}), "request: objects[1].size: -1, want 0 or more", false},
		"size too large":       {objects(m{{"name", "a"}, {"size", uint64(1) << 63}}), "request: objects[0].size: 9223372036854775808, the most is 9223372036854775807", false},
		"cost negative":        {objects(m{{"name", "a"}, {"cost", math.MinInt64}}), "request: objects[0].cost: -9223372036854775808, want 0 or more", false},
		"note a text":          {objects(m{{"name", "a"}, {"note", "bfloat16"}}), "request: objects[0].note: want bytes, got a text", false},
		"print's key":          {hello.with(pair{"fingerprint", m{{"modell", "m"}}}), "request: fingerprint: ", false},
		"print's rank":         {hello.with(pair{"fingerprint", m{{"ranks", int64(1) << 31}}}), "request: fingerprint.ranks: 2147483648, the most is 2147483647", false},
		"print without model":  {hello.with(pair{"fingerprint", m{{"dtype", "d"}}}), "request: fingerprint: ", false},
		"short session":        {hello.with(pair{"session", "1234567"}), "request: session: ", false},
		"long session":         {hello.with(pair{"session", strings.Repeat("a", maxSession+1)}), "request: session: ", false},
		"session with a slash": {hello.with(pair{"session", "1234/5678"}), "request: session: ", false},
		"session not ASCII":    {hello.with(pair{"session", "1234567é"}), "request: session: ", false},
		"long client":          {hello.with(pair{"client", strings.Repeat("a", MaxClient+1)}), "request: client: 101 bytes", false},
		"client with a line":   {hello.with(pair{"client", "a\nb"}), "request: client: ", false},
		"client with U+0085":   {hello.with(pair{"client", "a\u0085b"}), "request: client: ", false},
		"version too large":    {hello.with(pair{"version", int64(1) << 31}), "upgrade the daemon", false},
		"version 0":            {hello.with(pair{"version", 0}), "the client speaks version 0", false},
		"version a text":       {hello.with(pair{"version", "1"}), "request: version: want an integer, got a text", false},
		"no version":           {hello.without("version"), "request: version: hello needs it", false},
		"long lease":           {pin.with(pair{"lease", strings.Repeat("a", maxLease+1)}), "request: lease: ", false},
		"lease with a zero":    {pin.with(pair{"lease", "a\x00"}), "request: lease: ", false},
		"no lease":             {pin.without("lease"), "request: lease: pin needs it", false},
		"no space":             {pin.without("space"), "request: space: pin needs it", false},
		"no names":             {pin.with(pair{"names", list{}}), "request: names: pin needs it", false},
		"commit with seconds":  {pin.with(pair{"op", "commit"}, pair{"seconds", 1}), "request: seconds: commit has them with keep only", false},
		"release of nothing":   {m{{"id", 7}, {"op", "release"}}, "request: leases: release needs", false},
		"release of both":      {pin.with(pair{"op", "release"}, pair{"leases", list{"l"}}), "request: leases: release has leases, or", false},
		"release, no names":    {pin.with(pair{"op", "release"}).without("names"), "request: leases: release needs", false},
		"release, bad lease":   {m{{"id", 7}, {"op", "release"}, {"leases", list{"a", ""}}}, "request: leases: ", false},
		"stat without space":   {m{{"id", 7}, {"op", "stat"}, {"names", list{"a"}}}, "request: space: stat needs it with names", false},
		"stat without names":   {m{{"id", 7}, {"op", "stat"}, {"space", "s"}}, "request: space: stat needs it with names", false},
	} {
		t.Run(name, func(t *testing.T) {
			raw, ok := c.body.([]byte)
			if !ok {
				raw = pack(t, c.body)
			}
			q := Request{Lease: "before", Names: []string{"before"}}
			err := DecodeRequest(raw, &q)
			var bad *Error
			require.ErrorAs(t, err, &bad)
			require.Contains(t, bad.Text, c.want)
			if c.dead {
				require.Equal(t, Request{}, q)
			} else {
				require.Equal(t, Request{ID: 7}, q)
			}
			if strings.Contains(bad.Text, ": upgrade the ") {
				require.Equal(t, KindVersion, bad.Kind)
			} else {
				require.Equal(t, KindInvalid, bad.Kind)
			}
		})
	}
}

// TestHelloOfLaterVersions: whatever a later version has in its hello, it is told which side to upgrade.
func TestHelloOfLaterVersions(t *testing.T) {
	for name, v := range map[string]m{
		"plain":      hello.with(pair{"version", 2}),
		"more keys":  hello.with(pair{"version", 2}, pair{"compression", list{"zstd"}}, pair{7, m{{"a", list{list{list{m{}}}}}}}),
		"other type": hello.with(pair{"version", 2}, pair{"session", 12345678}),
		"older":      hello.with(pair{"version", 0}, pair{"more", 1}),
	} {
		t.Run(name, func(t *testing.T) {
			var q Request
			err := DecodeRequest(pack(t, v), &q)
			var bad *Error
			require.ErrorAs(t, err, &bad)
			require.Equal(t, KindVersion, bad.Kind)
			require.Equal(t, Request{ID: 7}, q)
			side := "upgrade the daemon"
			if name == "older" {
				side = "upgrade the client"
			}
			require.Contains(t, bad.Text, side)
		})
	}
	var q Request
	require.NoError(t, DecodeRequest(pack(t, pin.with(pair{"version", 2})), &q), "only hello has a version")
	require.Zero(t, q.Version)
}

func TestBadReplies(t *testing.T) {
	item := func(p ...pair) m { return m{{"id", 7}, {"items", list{m{{"status", "hit"}}, m(p)}}} }
	for name, c := range map[string]struct {
		body any
		want string
	}{
		"nothing":             {[]byte{}, "reply: byte 0"},
		"empty":               {m{}, "reply: an answer without an id"},
		"key twice":           {m{{"id", 7}, {"id", 7}}, `reply: the key "id" twice`},
		"error and items":     {m{{"id", 7}, {"error", m{{"kind", "busy"}}}, {"items", list{m{{"status", "hit"}}}}}, "reply: an error and something else"},
		"error of no kind":    {m{{"id", 7}, {"error", m{{"text", "x"}}}}, `reply: error: the key "kind" is missing`},
		"item without status": {item(pair{"offset", 1}), `reply: items[1]: the key "status" is missing`},
		"status":              {item(pair{"status", "Hit"}), `reply: items[1].status: "Hit" is unknown`},
		"offset":              {item(pair{"status", "hit"}, pair{"offset", -1}), "reply: items[1].offset: -1, want 0 or more"},
		"size":                {item(pair{"status", "hit"}, pair{"size", uint64(1) << 63}), "reply: items[1].size: 9223372036854775808, the most"},
		"size -1":             {item(pair{"status", "hit"}, pair{"size", -1}), "reply: items[1].size: -1, want 0 or more"},
		"levels":              {item(pair{"status", "hit"}, pair{"levels", list{"a", 1}}), "reply: items[1].levels[1]: want a text, got an integer"},
		"segment's inode":     {m{{"id", 7}, {"segment", m{{"inode", "1"}}}}, "reply: segment.inode: want an integer"},
		"limits":              {m{{"id", 7}, {"limits", m{{"names", int64(1) << 31}}}}, "reply: limits.names: 2147483648, the most is 2147483647"},
		"level's name":        {m{{"id", 7}, {"state", m{{"levels", list{m{}}}}}}, `reply: state.levels[0]: the key "name" is missing`},
		"level below -1":      {m{{"id", 7}, {"state", m{{"levels", list{m{{"name", "a"}, {"bytes", -2}}}}}}}, "reply: state.levels[0].bytes: -2, want -1 or more"},
		"level's large":       {m{{"id", 7}, {"state", m{{"levels", list{m{{"name", "a"}, {"held", uint64(1) << 63}}}}}}}, "reply: state.levels[0].held: 9223372036854775808, the most"},
		"backlog -1":          {m{{"id", 7}, {"state", m{{"backlog", -1}}}}, "reply: state.backlog: -1, want 0 or more"},
		"lease's seconds":     {m{{"id", 7}, {"leases", list{m{{"name", "a"}, {"seconds", -300}}}}}, "reply: leases[0].seconds: -300, want -1 or more"},
		"lease's seconds, 8":  {m{{"id", 7}, {"leases", list{m{{"name", "a"}, {"seconds", "x"}}}}}, "reply: leases[0].seconds: want an integer, got a text"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, ok := c.body.([]byte)
			if !ok {
				raw = pack(t, c.body)
			}
			p := Reply{Server: "before", Items: []Item{{}}}
			err := DecodeReply(raw, &p)
			var bad *Error
			require.ErrorAs(t, err, &bad)
			require.Contains(t, bad.Text, c.want)
			require.Equal(t, Reply{}, p)
		})
	}
	var p Reply
	require.NoError(t, DecodeReply(pack(t, m{{"error", m{{"kind", "invalid"}}}}), &p), "an error about the connection")
	require.NoError(t, DecodeReply(pack(t, m{{"id", 7}, {"leases", list{m{{"name", "a"}, {"seconds", -1}}}}}), &p))
	require.Equal(t, int64(-1), p.Leases[0].Seconds)
}

// TestAppendRefuses: what the other side would refuse to read is not sent, and the buffer stays as it was.
func TestAppendRefuses(t *testing.T) {
	for name, q := range map[string]*Request{
		"request: names: 1025":   {ID: 1, Op: Pin, Names: make([]string, MaxNames+1)},
		"request: objects: 1025": {ID: 1, Op: Pin, Objects: make([]Object, MaxNames+1)},
		"request: leases: 1025":  {ID: 1, Op: Pin, Leases: make([]string, MaxNames+1)},
		"request: lease: ":       {ID: 1, Op: Pin, Lease: notUTF8},
		"request: names: ":       {ID: 1, Op: Pin, Names: []string{"a", notUTF8}},
		"request: version: -1":   {ID: 1, Op: Hello, Version: -1},
		"request: size: -1":      {ID: 1, Op: Reserve, Objects: []Object{{Name: "a", Size: -1}}},
		"request: cost: -1":      {ID: 1, Op: Reserve, Objects: []Object{{Name: "a", Cost: -1}}},
		"a message has 10485":    {ID: 1, Op: Pin, Space: strings.Repeat("x", MaxRequest)},
	} {
		b, err := AppendRequest([]byte("before"), q)
		require.ErrorContains(t, err, name)
		require.Equal(t, "before", string(b))
	}
	for name, p := range map[string]*Reply{
		"reply: id: ":         {},
		"reply: error: ":      {ID: 1, Error: &Error{Kind: KindBusy}, Space: "s"},
		"reply: kind: ":       {ID: 1, Error: &Error{}},
		"reply: status: ":     {ID: 1, Items: []Item{{}}},
		"reply: objects: -2":  {ID: 1, State: &State{Levels: []Level{{Objects: -2}}}},
		"reply: server: ":     {ID: 1, Server: notUTF8},
		"reply: pid: -1":      {ID: 1, Leases: []Lease{{PID: -1}}},
		"a message has 83886": {ID: 1, Server: strings.Repeat("x", MaxReply)},
	} {
		b, err := AppendReply([]byte("before"), p)
		require.ErrorContains(t, err, name)
		require.Equal(t, "before", string(b))
	}
	b, err := AppendReply(nil, &Reply{Error: &Error{Kind: KindInvalid, Text: "no " + notUTF8}})
	require.NoError(t, err)
	var p Reply
	require.NoError(t, DecodeReply(b[header:], &p))
	require.Equal(t, "no a\uFFFDb", p.Error.Text)
}

// TestControlCharacters: labels and leases are shown in lists and logs, so they have nothing that a terminal
// obeys or nobody sees.
func TestControlCharacters(t *testing.T) {
	for _, c := range []string{"\x00", "\a", "\x1b", "\x7f", "\u0085", "\u009b", "\u00ad", "\u200b", "\u200e", "\u2028", "\u202e", "\u2066", "\ufeff", "\U000e0001"} {
		hello := Request{ID: 1, Op: Hello, Version: Version, Session: "session-1", Client: "a" + c + "b"}
		require.ErrorContains(t, hello.Validate(), "client: ", "%q", c)
		pin := Request{ID: 1, Op: Pin, Space: "s", Names: []string{"n"}, Lease: "a" + c + "b"}
		require.ErrorContains(t, pin.Validate(), "lease: ", "%q", c)
		release := Request{ID: 1, Op: Release, Leases: []string{"a" + c + "b"}}
		require.ErrorContains(t, release.Validate(), "leases: ", "%q", c)
	}
	hello := Request{ID: 1, Op: Hello, Version: Version, Session: "session-1", Client: "worker 0, größer 日本 😀"}
	require.NoError(t, hello.Validate())
}
