package agent

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

// invalid sends a request that must be invalid, and returns the error's text.
func (k *talker) invalid(line string) string {
	k.t.Helper()
	return k.failure("invalid", line)["text"].(string)
}

// A field that no operation reads is a mistake of the caller's: `polcy` would
// otherwise make a store of the policy fifo.
func TestMisspeltFieldIsRefused(t *testing.T) {
	k := newTalker(t)
	text := k.invalid(`{"op":"store.create","store":"s","size":65536,"max_object":4096,"readers":1,"polcy":"pool"}`)
	require.Contains(t, text, `"polcy"`)
	require.Contains(t, text, "policy", "the text has the fields that there are")
	require.Contains(t, k.invalid(`{"op":"store.state","store":"s"}`), "no store", "nothing was made")
	for _, op := range k.a.Ops() {
		require.Contains(t, k.invalid(`{"op":"`+op+`","nope":1}`), `"nope"`, op)
	}
	// Names count as they are written, and null is no way around.
	for field, line := range map[string]string{
		"Capacity":  `{"op":"lru.new","lru":"l","Capacity":1,"capacity":2}`,
		"grow_anwe": `{"op":"lru.new","lru":"l","capacity":2,"grow_anwe":null}`,
		"op":        `{"OP":"lru.new","lru":"l","capacity":2}`,
	} {
		t.Run(field, func(t *testing.T) { k.in(t).refuses("invalid", line, `"`+field+`"`) })
	}
}

func TestMisspeltFieldInsideAValueIsRefused(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"pair.new","pair":"r","role":"receiver","capacity":1000}`)
	const tensor = `{"dtype":"uint8","shape":[1],"hex":"00"}`
	for what, line := range map[string]string{
		"modalty":    `{"op":"serde.encode","value":{"type":"tensor","data":` + tensor + `,"modalty":"x"}}`,
		"hexx":       `{"op":"serde.encode","value":{"type":"tensor","data":{"dtype":"uint8","shape":[1],"hex":"00","hexx":"01"}}}`,
		"feild":      `{"op":"serde.encode","value":{"type":"item","fields":[{"name":"x","data":1,"feild":1,"field":{"kind":"batched"}}]}}`,
		"keep_oncpu": `{"op":"serde.encode","value":{"type":"item","fields":[{"name":"x","data":1,"field":{"kind":"batched","keep_oncpu":true}}]}}`,
		"identifer":  `{"op":"pair.features","pair":"r","features":[{"key":"a","identifer":"b","value":null}]}`,
		"extra":      `{"op":"hash","kwargs":[["a",{"str":"x","extra":1}]]}`,
		"paletted":   `{"op":"hash","kwargs":[["a",{"image":{"mode":"P","size":[1,1],"hex":"00","paletted":""}}]]}`,
		"ioconfig":   `{"op":"hash","kwargs":[["a",{"media":{"kind":"image","bytes":"00","ioconfig":null}}]]}`,
		"dim":        `{"op":"hash","kwargs":[["a",{"tensor":{"dtype":"uint8","shape":[1],"hex":"00","dim":1}}]]}`,
		"cache_slat": `{"op":"request.encode","request":{"prompt_token_ids":[1],"sampling_params":{},"cache_slat":"x"}}`,
		"lenght":     `{"op":"request.encode","request":{"prompt_token_ids":[1],"sampling_params":{},"mm_features":[{"lenght":1}]}}`,
		"order":      `{"op":"request.encode","request":{"prompt_token_ids":[1],"sampling_params":{"x":{"$ndarray":{"dtype":"<f4","shape":[0],"hex":"","order":"F"}}}}}`,
		"finish":     `{"op":"outputs.encode","outputs":{"outputs":[{"request_id":"r","finish":1}]}}`,
	} {
		t.Run(what, func(t *testing.T) { k.in(t).refuses("invalid", line, what) })
	}
}

// TestDocumentedFieldsAreThoseOfTheTable reads the tables of docs/agent.md, where
// what is in parentheses describes a field.
func TestDocumentedFieldsAreThoseOfTheTable(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "agent.md"))
	require.NoError(t, err)
	parentheses := regexp.MustCompile(`\([^()]*\)`)
	documented := map[string][]string{}
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		described := cells[2]
		for parentheses.MatchString(described) {
			described = parentheses.ReplaceAllString(described, "")
		}
		var names []string
		for _, part := range regexp.MustCompile(`[,;]| or `).Split(described, -1) {
			words := strings.Fields(part)
			name := strings.TrimSuffix(words[len(words)-1], "?")
			if names = append(names, name); name == "generation" {
				names = append(names, "treat_as")
			}
		}
		for _, op := range regexp.MustCompile("`([a-z_]+(?:\\.[a-z_]+)?)`").FindAllStringSubmatch(cells[1], -1) {
			documented[op[1]] = append(documented[op[1]], names...) // an operation with many fields has two rows
		}
	}
	for name, op := range New().ops {
		require.ElementsMatch(t, documented[name], strings.Fields(op.fields), name)
	}
}

// Go's decoder makes U+FFFD of what is no UTF-8, and one key of two.
func TestTextThatIsNoUnicodeIsRefused(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"store.create","store":"s","size":65536,"max_object":4096,"readers":1}`)
	k.ok(`{"op":"lru.new","lru":"l","capacity":100}`)
	for _, bad := range []string{
		`\ud800`, `a\udfff`, `\ud800\ud801`, `\uD83Dx`, `\ud83d\\ude00`, `\udc00\ud800`, "\xff", "\xed\xa0\x80", "\xc0\x80", "a\xe2\x82",
	} {
		for _, line := range []string{
			`{"op":"store.put","store":"s","key":"%s","value":` + pickleA + `}`,
			`{"op":"store.cached","store":"s","key":"%s"}`,
			`{"op":"store.begin","store":"s","request":"%s"}`,
			`{"op":"lru.put","lru":"l","key":"%s","size":1}`,
			`{"op":"lru.new","lru":"%s","capacity":1}`,
			`{"op":"size_of","value":{"type":"item","fields":[{"name":"%s","data":1,"field":{"kind":"batched"}}]}}`,
			`{"op":"hash","kwargs":[["a",{"str":"%s"}]]}`,
			`{"op":"request.encode","request":{"prompt_token_ids":[1],"sampling_params":{"extra_args":{"%s":1}}}}`,
			`{"op":"lru.state","lru":"l","seq":"%s"}`,
		} {
			require.Contains(t, k.invalid(fmt.Sprintf(line, bad)), "UTF-8", "%q", line)
		}
	}
	k.ok(`{"op":"lru.state","lru":"l"}`, "order", `[]`)
	for _, good := range []string{`\ud83d\ude00`, `\\ud800`, `\ufffd`, "\uFFFD", `\\\\udfff\"`, "\U0001F600", `\u0000`} {
		k.ok(`{"op":"lru.put","lru":"l","key":"` + good + `","size":1}`)
	}
}

func TestTreatAnUnknownVersionAsAKnownOne(t *testing.T) {
	k := newTalker(t)
	k.refuses("unsupported", `{"op":"store.create","store":"s","size":65536,"max_object":4096,"readers":1,"generation":"9.9.9"}`, `"9.9.9"`)
	k.ok(`{"op":"store.create","store":"s","size":65536,"max_object":4096,"readers":1,"generation":"9.9.9","treat_as":"0.31.0"}`,
		"segment_bytes", fmt.Sprint(65536)) // no room for a secret before the data, as in 0.31.0
	k.ok(`{"op":"store.put","store":"s","key":"a","value":` + pickleA + `}`)
	k.refuses("unsupported", `{"op":"store.signature","store":"s","key":"a"}`, "vLLM 9.9.9 has no signatures")
	k.ok(`{"op":"ring.new","ring":"r","size":100,"generation":"9.9.9","treat_as":"` + pycompat.Newest().Version + `"}`)
	k.ok(`{"op":"request.fields","generation":"9.9.9","treat_as":"0.31.0"}`)
	k.refuses("unsupported", `{"op":"ring.new","ring":"x","size":100,"generation":"9.9.9","treat_as":"9.9.8"}`, `"9.9.8"`)
	require.Contains(t, k.invalid(`{"op":"ring.new","ring":"x","size":100,"treat_as":"0.31.0"}`), "generation")
	require.Contains(t, k.invalid(`{"op":"ring.new","ring":"x","size":100,"generation":"0.33.0","treat_as":"0.31.0"}`), "known")
}

// allocated runs f and returns how many bytes it allocated, dead or alive: more
// than it ever held at once.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// What a line makes the agent allocate is a small multiple of the line.
func TestMemoryOfALongLine(t *testing.T) {
	const size = 1 << 18
	tensor := fmt.Sprintf(`{"dtype":"uint8","shape":[%d],"hex":"%s"}`, size, strings.Repeat("5a", size))
	nested := strings.Repeat("[", 60) + tensor + strings.Repeat("]", 60)
	plain := fmt.Sprintf(`{"$ndarray":{"dtype":"|u1","shape":[%d],"hex":"%s"}}`, size, strings.Repeat("5a", size))
	media := `{"str":"` + strings.Repeat("x", 2*size) + `"}`
	for range 20 {
		media = `{"list":[{"map":[["k",` + media + `]]}]}`
	}
	for name, c := range map[string]struct {
		line  string
		times int // the length of the line
	}{
		"put":            {`{"op":"store.put","store":"s","key":"a","value":{"type":"tensor","data":` + tensor + `}}`, 4},
		"item":           {`{"op":"size_of","value":{"type":"item","fields":[{"name":"x","data":` + tensor + `,"field":{"kind":"batched"}}]}}`, 4},
		"nested item":    {`{"op":"size_of","value":{"type":"item","fields":[{"name":"x","data":` + nested + `,"field":{"kind":"batched"}}]}}`, 4},
		"encode":         {`{"op":"serde.encode","value":{"type":"tensor","data":` + tensor + `}}`, 8},
		"decode":         {`{"op":"serde.decode","kind":"tensor","frames":["93a575696e743891ce0004000001","` + strings.Repeat("5a", size) + `"]}`, 4},
		"hash":           {`{"op":"hash","kwargs":[["a",` + media + `]]}`, 6},
		"nested request": {`{"op":"request.encode","request":{"prompt_token_ids":[1],"sampling_params":{"extra_args":{"a":` + strings.Repeat("[", 50) + plain + strings.Repeat("]", 50) + `}}}}`, 12},
	} {
		t.Run(name, func(t *testing.T) {
			a := New()
			t.Cleanup(func() { require.NoError(t, a.Close()) })
			a.Do([]byte(`{"op":"store.create","store":"s","size":16777216,"max_object":16777216,"readers":1}`))
			var got int
			in, out := strings.NewReader(c.line), new(ends)
			got = allocated(func() { require.NoError(t, a.Run(in, out)) })
			require.Contains(t, string(*out), `"ok":true`)
			require.LessOrEqual(t, got, c.times*len(c.line)+128<<10)
		})
	}
}

// ends keeps the first bytes that are written to it, and the last.
type ends []byte

func (b *ends) Write(p []byte) (int, error) {
	*b = append(append((*b)[:min(len(*b), 200)], p[:min(len(p), 200)]...), p[len(p)-min(len(p), 200):]...)
	return len(p), nil
}

// endless is a line without an end.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left) // what they hold does not matter, as long as no line ends
	e.left -= n
	return n, nil
}

// A line that is too long is read to its end, but not kept.
func TestLineThatIsTooLong(t *testing.T) {
	const later = "\n" + `{"op":"lru.new","lru":"l","capacity":1,"seq":7}`
	var out strings.Builder
	got := allocated(func() {
		in := io.MultiReader(&endless{left: 3 * maxLine}, strings.NewReader(later))
		require.NoError(t, New().Run(in, &out))
	})
	require.LessOrEqual(t, got, maxLine+maxLine/8)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], `"invalid"`)
	require.Contains(t, lines[0], fmt.Sprint(maxLine))
	require.Contains(t, lines[0], "xof", "the text says what to do")
	require.Contains(t, lines[1], `"seq":7`)
}

// Whatever the text, it is refused, or two different texts are two keys.
func TestDifferentKeysStayDifferent(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"lru.new","lru":"l","capacity":1000000}`)
	rnd := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", `\ud83d`, `\ude00`, `\\`, `\"`, "\xff", "\xc3", "\xa9", "\uFFFD", `\ufffd`, `\u0041`, "\xed\xa0\xbd"}
	stored := map[string]bool{}
	for range 600 {
		var key strings.Builder
		for range 1 + rnd.IntN(4) {
			key.WriteString(parts[rnd.IntN(len(parts))])
		}
		before := len(k.do(`{"op":"lru.state","lru":"l"}`)["order"].([]any))
		out := k.do(`{"op":"lru.put","lru":"l","key":"` + key.String() + `","size":1}`)
		after := len(k.do(`{"op":"lru.state","lru":"l"}`)["order"].([]any))
		if out["ok"] != true {
			require.Equal(t, before, after)
			continue
		}
		canonical := canonicalText(t, key.String())
		require.Equal(t, !stored[canonical], after == before+1, "%q", key.String())
		stored[canonical] = true
	}
	require.Greater(t, len(stored), 50)
}

// canonicalText spells the escapes of a text out by Python's rules for surrogates:
// only pairs make a character.
func canonicalText(t *testing.T, s string) string {
	t.Helper()
	return strings.NewReplacer(`\\`, "\x00", `\"`, "\x01", `\ud83d\ude00`, "\U0001F600", `\ufffd`, "\uFFFD", `\u0041`, "A").Replace(s)
}
