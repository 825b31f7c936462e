package lm

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is what testdata/lm_golden.py wrote: what LMCache's own classes made, and what its own server answered.
type golden struct {
	form     Form
	Versions map[string]string
	Form     string
	Request  int `json:"request_size"`
	Reply    int `json:"reply_size"`
	Requests []struct {
		Command                         int32
		Key, Hex                        string
		Length, Format, DType, Location int32
		Shape                           [4]int32
	}
	Replies []struct {
		Hex                                   string
		Code, Length, Format, DType, Location int32
		Shape                                 [4]int32
	}
	Connections []struct {
		Name  string
		Steps []struct{ Step, Send, Receive, End string }
	}
}

func goldens(t testing.TB) (all []golden) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	require.NoError(t, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		var g golden
		require.NoError(t, json.Unmarshal(b, &g), file)
		var known bool
		g.form, known = map[string]Form{"located": Located, "typed": Typed, "untyped": Untyped}[g.Form]
		require.True(t, known, file)
		all = append(all, g)
	}
	require.Len(t, all, 3, "one for each form")
	return all
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}

// TestHeadersAreLMCaches encodes and decodes the headers that LMCache's own classes made.
func TestHeadersAreLMCaches(t *testing.T) {
	for _, g := range goldens(t) {
		f := g.form
		require.Equal(t, [2]int{g.Request, g.Reply}, [2]int{f.RequestSize(), f.ReplySize()})
		for _, x := range g.Requests {
			q := Request{Command(x.Command), x.Key, x.Length, Meta{x.Format, x.DType, x.Shape}, x.Location}
			want := unhex(t, x.Hex)
			b, err := f.AppendRequest(nil, &q)
			require.NoError(t, err)
			require.Equal(t, want, b)
			require.Equal(t, f, recognize(b[:recognized]), "%+v", q)
			got, err := f.DecodeRequest(b)
			require.NoError(t, err)
			require.Equal(t, q, got)
			_, err = f.KeyOf(q.Key)
			require.NoError(t, err)
		}
		for _, x := range g.Replies {
			p := Reply{Code(x.Code), x.Length, Meta{x.Format, x.DType, x.Shape}, x.Location}
			b, err := f.AppendReply(nil, &p)
			require.NoError(t, err)
			require.Equal(t, unhex(t, x.Hex), b)
			got, err := f.DecodeReply(b)
			require.NoError(t, err)
			require.Equal(t, p, got)
		}
		t.Logf("lmcache %s, %s: %d requests and %d replies",
			g.Versions["lmcache"], g.Form, len(g.Requests), len(g.Replies))
	}
}

// TestNegativeNumbersAreNoText: a header of today's form with the dimension -1 was taken for one of another form.
func TestNegativeNumbersAreNoText(t *testing.T) {
	for _, n := range []int32{-1, -2, -1 << 31} {
		b, err := Located.AppendRequest(nil, &Request{Put, "m@1@0@ff@half", 1, Meta{1, 2, [4]int32{1, 1, 1, n}}, 0})
		require.NoError(t, err)
		require.Equal(t, Located, recognize(b))
	}
}

func TestKeysHaveOneSpelling(t *testing.T) {
	for _, x := range []struct {
		form Form
		text string
		want string // empty is refused
	}{
		{Located, "m@1@0@ff@half", "m@1@0@ff@half"},
		{Located, "m@01@00@00FF@half@007@a%1", "m@1@0@ff@half@7@a%1"},
		{Located, "m@1@0@-00FF@half", "m@1@0@-ff@half"},
		{Located, "m@1@0@-0@half", "m@1@0@0@half"},
		{Located, "m@1@0@0@half@b%2@a%01", "m@1@0@0@half@b%2@a%01"},
		{Typed, "vllm@org/m@1@0@00FF", "vllm@org/m@1@0@00FF"},
		{Located, "vllm@m@8@7@hash@31@a%1", "vllm@m@8@7@hash@31@a%1"},
		{Located, "m@1@0@ff@int7", ""},
		{Located, "m@6@2@0@int7", ""}, // was taken for a key of an old release
		{Located, "m@1@0@ff@half@a", ""},
		{Located, "m@1@0@@half", ""},
		{Located, "m@1@0@ff@half\x00", ""},
		{Located, "vllm@m@1@0@\x00", ""},
		{Located, "org/model@6@2@0@int7", ""}, // as LMCache's server, which knows no such dtype
		{Located, "", ""},
		{Untyped, "any  text", "any  text"},
		{Untyped, "", ""},
		{Untyped, "a\x00", ""},
		{Untyped, "\xff", ""},
	} {
		k, err := x.form.KeyOf(x.text)
		require.Equal(t, x.want, k.Name, "%q: %v", x.text, err)
		require.Equal(t, x.want == "", err != nil, "%q", x.text)
	}
}

func TestHeadersRefuse(t *testing.T) {
	good := Request{Put, "m@1@0@ff@half", 1, Meta{1, 2, [4]int32{1}}, 0}
	for name, change := range map[string]func(q *Request){
		"command 0":       func(q *Request) { q.Command = 0 },
		"command 6":       func(q *Request) { q.Command = 6 },
		"negative length": func(q *Request) { q.Length = -1 },
		"format 9":        func(q *Request) { q.Meta.Format = 9 },
		"format -1":       func(q *Request) { q.Meta.Format = -1 },
		"dtype 9":         func(q *Request) { q.Meta.DType = 9 },
		"location 3":      func(q *Request) { q.Location = 3 },
	} {
		q := good
		change(&q)
		_, err := Located.AppendRequest(nil, &q)
		require.Error(t, err, name)
		b := appendWords(nil, int32(q.Command), q.Length, q.Meta.Format, q.Meta.DType, q.Location, 1, 0, 0, 0)
		b = append(b, q.Key...)
		for len(b) < Located.RequestSize() {
			b = append(b, ' ')
		}
		_, err = Located.DecodeRequest(b)
		require.Error(t, err, name)
	}
	for name, key := range map[string]string{"long": string(make([]byte, 151)), "spaces": " m", "no UTF-8": "\xff"} {
		q := good
		q.Key = key
		_, err := Located.AppendRequest(nil, &q)
		require.Error(t, err, name)
	}
	for name, b := range map[string][]byte{
		"short":           make([]byte, 35),
		"code":            appendWords(nil, 300, 0, 1, 2, 0, 0, 0, 0, 0),
		"negative length": appendWords(nil, 200, -1, 1, 2, 0, 0, 0, 0, 0),
		"format":          appendWords(nil, 200, 0, 9, 2, 0, 0, 0, 0, 0),
		"location":        appendWords(nil, 200, 0, 1, 2, 0, 0, 0, 0, 3),
	} {
		_, err := Located.DecodeReply(b)
		require.Error(t, err, name)
	}
}
