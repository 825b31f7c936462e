package agent

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bytesItem is vLLM's MultiModalKwargsItem of one uint8 tensor, as the golden
// files use it.
func bytesItem(size int) string {
	return fmt.Sprintf(`{"type":"item","fields":[{"name":"x","data":{"dtype":"uint8","shape":[%d],"hex":"%s"},"field":{"kind":"batched"}}]}`,
		size, hex.EncodeToString(make([]byte, size)))
}

// itemBytes is the size of such an item in a reply.
func itemBytes(t testing.TB, value any) json.Number {
	t.Helper()
	fields := value.(map[string]any)["fields"].([]any)
	require.Len(t, fields, 1)
	shape := fields[0].(map[string]any)["data"].(map[string]any)["shape"].([]any)
	require.Len(t, shape, 1)
	return shape[0].(json.Number)
}

func TestPairFamily(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"pair.new","pair":"s","role":"sender","capacity":10}`)
	k.ok(`{"op":"pair.new","pair":"r","role":"receiver","capacity":10}`)
	k.refuses("invalid", `{"op":"pair.new","pair":"s","role":"sender","capacity":10}`, `pair "s" exists`)
	item := bytesItem(4)
	k.ok(`{"op":"pair.cached","pair":"s","keys":["a","b"]}`, "cached", `[false,false]`)
	k.ok(`{"op":"pair.cached","pair":"s","keys":[]}`, "cached", `[]`)
	k.ok(`{"op":"pair.update","pair":"s","key":"a","value":`+item+`,"prompt_updates":["<image>",{"n":[1, 2]}]}`,
		"data", `"sent"`, "prompt_updates", `["<image>",{"n":[1,2]}]`)
	k.ok(`{"op":"pair.update","pair":"s","key":"a","value":null}`, "data", `"omitted"`, "prompt_updates", `["<image>",{"n":[1,2]}]`)
	out := k.ok(`{"op":"pair.update","pair":"s","key":"b","value":`+item+`,"prompt_updates":"00ff"}`, "data", `"sent"`, "prompt_updates", `"00ff"`)
	require.NotContains(t, out, "value")
	out = k.ok(`{"op":"pair.update","pair":"s","key":"b","value":`+item+`,"prompt_updates":"later"}`, "data", `"omitted"`, "prompt_updates", `"00ff"`)
	require.NotContains(t, out, "value")
	k.ok(`{"op":"pair.touch","pair":"s","key":"a"}`)
	k.ok(`{"op":"pair.touch","pair":"s","key":"z"}`)
	k.ok(`{"op":"pair.state","pair":"s"}`, "order", `["b","a"]`, "size", `8`, "hits", `2`, "total", `4`)

	miss := k.do(`{"op":"pair.update","pair":"s","key":"c","value":null}`)
	require.Equal(t, []any{"c"}, miss["hashes"])
	k.fails("miss", `{"op":"pair.update","pair":"s","key":"c"}`, "Expected a cached item for mm_hash='c'")
	out = k.ok(`{"op":"pair.update","pair":"s","key":"big","value":`+bytesItem(11)+`}`, "data", `"sent"`)
	require.NotContains(t, out, "prompt_updates")
	k.ok(`{"op":"pair.cached","pair":"s","keys":["big","a"]}`, "cached", `[false,true]`)
	k.ok(`{"op":"pair.invalidate","pair":"s","key":"a"}`)
	k.ok(`{"op":"pair.invalidate","pair":"s","key":"a"}`)
	k.ok(`{"op":"pair.state","pair":"s"}`, "order", `["b"]`, "size", `4`)
	k.ok(`{"op":"pair.clear","pair":"s"}`)
	k.ok(`{"op":"pair.state","pair":"s"}`, "order", `[]`, "size", `0`, "hits", `0`, "total", `0`)

	features := `{"op":"pair.features","pair":"r","features":[{"key":"a","identifier":"lora:a","value":` + item + `},{"key":"b","value":null},{"key":"c"},{"key":"d","value":` + item + `},{"key":"b"}]}`
	got := k.do(features)
	require.Equal(t, false, got["ok"])
	require.Equal(t, []any{"b", "c", "b"}, got["hashes"], "in the order of the features, each as often as it was missed")
	k.fails("miss", features, "Multi-modal items ['b', 'c', 'b'] are not in the receiver (P1) cache and no data was provided to recompute them "+
		"(P0/P1 cache drift); the request should be retried with the multi-modal data attached.")
	k.ok(`{"op":"pair.state","pair":"r"}`, "order", `["a","d"]`, "size", `8`, "hits", `0`, "total", `6`)
	out = k.ok(`{"op":"pair.features","pair":"r","features":[{"key":"d"},{"key":"a","identifier":"other"},{"identifier":"e","key":null,"value":{"type":"tensor","data":{"dtype":"int8","shape":[2],"hex":"0102"}}}]}`)
	values := out["values"].([]any)
	require.Len(t, values, 3)
	require.Equal(t, json.Number("4"), itemBytes(t, values[0]))
	require.Equal(t, "0102", values[2].(map[string]any)["data"].(map[string]any)["hex"])
	k.ok(`{"op":"pair.state","pair":"r"}`, "order", `["d","a","e"]`, "size", `10`)
	k.ok(`{"op":"pair.features","pair":"r","features":[]}`, "values", `[]`)
	k.ok(`{"op":"pair.clear","pair":"r"}`)
	k.ok(`{"op":"pair.close","pair":"r"}`)
	k.refuses("invalid", `{"op":"pair.state","pair":"r"}`, `no pair "r"`)
}

func TestProcessorOnly(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"pair.new","pair":"p","role":"processor_only","capacity":30,"python":"3.10"}`)
	value := func(n string) string {
		return `{"type":"item","fields":[{"name":"n","data":` + n + `,"field":{"kind":"shared","batch_size":1}}],"modality":"image"}`
	}
	k.ok(`{"op":"pair.update","pair":"p","key":"a","value":`+value("0")+`,"prompt_updates":1}`, "data", `"sent"`, "value", value("0"), "prompt_updates", `1`)
	k.ok(`{"op":"pair.state","pair":"p"}`, "size", `24`)
	k.ok(`{"op":"pair.update","pair":"p","key":"a","value":null}`, "data", `"sent"`, "value", value("0"), "prompt_updates", `1`)
	k.ok(`{"op":"pair.update","pair":"p","key":"a","value":`+value("5")+`}`, "value", value("0"), "prompt_updates", `1`)
	k.fails("miss", `{"op":"pair.update","pair":"p","key":"b","value":null}`, "Expected a cached item for mm_hash='b'")
	k.ok(`{"op":"pair.cached","pair":"p","keys":["a","b"]}`, "cached", `[true,false]`)
	k.ok(`{"op":"pair.touch","pair":"p","key":"a"}`)
	k.ok(`{"op":"pair.update","pair":"p","key":"b","value":`+value("1")+`}`, "data", `"sent"`)
	k.ok(`{"op":"pair.state","pair":"p"}`, "order", `["b"]`, "size", `28`, "hits", `2`, "total", `5`)
	k.ok(`{"op":"pair.invalidate","pair":"p","key":"b"}`)
	k.ok(`{"op":"pair.state","pair":"p"}`, "order", `["b"]`)

	k.ok(`{"op":"pair.new","pair":"current","role":"processor_only","capacity":30}`)
	k.ok(`{"op":"pair.update","pair":"current","key":"a","value":` + value("0") + `}`)
	k.ok(`{"op":"pair.state","pair":"current"}`, "size", `28`)
}

func TestBadPairLines(t *testing.T) {
	k := newTalker(t)
	for _, role := range []string{"sender", "receiver", "processor_only"} {
		k.ok(`{"op":"pair.new","pair":"` + role + `","role":"` + role + `","capacity":10}`)
	}
	for _, c := range []struct{ line, text string }{
		{`{"op":"pair.new"}`, `field "pair" is missing`},
		{`{"op":"pair.new","pair":"x","role":"sender"}`, `field "capacity" is missing`},
		{`{"op":"pair.new","pair":"x","capacity":1}`, `field "role" is missing`},
		{`{"op":"pair.new","pair":"x","role":"both","capacity":1}`, `unknown role "both"`},
		{`{"op":"pair.new","pair":"x","role":"sender","capacity":-1}`, "capacity of -1 bytes"},
		{`{"op":"pair.new","pair":"x","role":"sender","capacity":1e300}`, "capacity of 1e+300 bytes"},
		{`{"op":"pair.new","pair":"x","role":"sender","capacity":1,"python":"2.7"}`, `field "python": lrusync: invalid argument: Python version "2.7"`},
		{`{"op":"pair.new","pair":"x","role":"sender","capacity":1,"python":3.11}`, `field "python": json: cannot unmarshal number`},
		{`{"op":"pair.cached","pair":"sender"}`, `field "keys" is missing`},
		{`{"op":"pair.cached","pair":"sender","keys":"a"}`, `field "keys": json: cannot unmarshal string`},
		{`{"op":"pair.cached","pair":"sender","keys":[1]}`, `field "keys": json: cannot unmarshal number`},
		{`{"op":"pair.touch","pair":"sender"}`, `field "key" is missing`},
		{`{"op":"pair.update","pair":"sender"}`, `field "key" is missing`},
		{`{"op":"pair.update","pair":"sender","key":"a","value":5}`, `field "value": json: cannot unmarshal number`},
		{`{"op":"pair.update","pair":"sender","key":"a","value":{"type":"item","fields":[]}}`, "an item or list without any value has no size"},
		{`{"op":"pair.features","pair":"receiver"}`, `field "features" is missing`},
		{`{"op":"pair.features","pair":"receiver","features":[null]}`, `field "key" is missing`},
		{`{"op":"pair.features","pair":"receiver","features":[5]}`, `field "features": json: cannot unmarshal number`},
		{`{"op":"pair.features","pair":"receiver","features":[{}]}`, `field "key" is missing`},
		{`{"op":"pair.features","pair":"receiver","features":[{"key":"a","value":{"type":"item","fields":[]}}]}`, "an item or list without any value has no size"},
		{`{"op":"pair.features","pair":"receiver","features":[{"key":"a","value":` + bytesItem(1) + `},{"key":"b","value":7}]}`, `field "value": json: cannot unmarshal number`},
		{`{"op":"pair.state","pair":"none"}`, `no pair "none"`},
	} {
		t.Run(c.text, func(t *testing.T) { k.in(t).refuses("invalid", c.line, c.text) })
	}
	k.refuses("unsupported", `{"op":"pair.new","pair":"x","role":"sender","capacity":1,"generation":"9.9.9"}`, `"9.9.9"`)
	for _, c := range []struct{ line, text string }{
		{`{"op":"pair.cached","pair":"receiver","keys":["a"]}`, "pair.cached is for a sender or processor_only"},
		{`{"op":"pair.touch","pair":"receiver","key":"a"}`, "pair.touch is for a sender or processor_only"},
		{`{"op":"pair.invalidate","pair":"receiver","key":"a"}`, "pair.invalidate is for a sender or processor_only"},
		{`{"op":"pair.update","pair":"receiver","key":"a","value":null}`, "pair.update is for a sender or processor_only"},
		{`{"op":"pair.features","pair":"sender","features":[]}`, "pair.features is for a receiver"},
		{`{"op":"pair.features","pair":"processor_only","features":[]}`, "pair.features is for a receiver"},
		{`{"op":"pair.update","pair":"sender","key":"a","value":` + pickleA + `}`, "the size of a pickled object is known to Python only"},
	} {
		t.Run(c.text, func(t *testing.T) { k.in(t).refuses("unsupported", c.line, c.text) })
	}
	k.a.maxData = 100 // for all tensors of one request
	const f = `{"key":"a","value":{"type":"tensor","data":{"dtype":"uint8","shape":[10],"xof":"x"}}}`
	k.refuses("invalid", `{"op":"pair.features","pair":"receiver","features":[`+strings.Repeat(f+",", 10)+f+`]}`, "tensor of 10 bytes, at most 0 are left for this request")
	for _, role := range []string{"sender", "receiver", "processor_only"} {
		k.ok(`{"op":"pair.state","pair":"`+role+`"}`, "order", `[]`, "total", `0`)
	}
}

func TestSizeOf(t *testing.T) {
	k := newTalker(t)
	item := func(data string) string {
		return `{"type":"item","fields":[{"name":"x","data":` + data + `,"field":{"kind":"batched"}}]}`
	}
	for _, tc := range []struct{ value, narrow, wide string }{
		{item(`0`), `24`, `28`},
		{item(`false`), `24`, `28`},
		{item(`1`), `28`, `28`},
		{item(`-1073741824`), `32`, `32`},
		{item(`18446744073709551615`), `36`, `36`},
		{item(`0.0`), `24`, `24`},
		{item(`{"float":"nan"}`), `24`, `24`},
		{item(`null`), `16`, `16`},
		{item(`[0,[null,1.5],[]]`), `64`, `68`},
		{item(`{"dtype":"bfloat16","shape":[2,2],"hex":"0001020304050607"}`), `8`, `8`},
		{`{"type":"tensor","data":{"dtype":"int64","shape":[100],"xof":"x"}}`, `800`, `800`},
	} {
		for _, version := range []string{"3.9", "3.10", "3.11.1"} {
			k.ok(`{"op":"size_of","python":"`+version+`","value":`+tc.value+`}`, "bytes", tc.narrow)
		}
		for _, version := range []string{"3.11", "3.11.7", "3.12", "3.13", "3.14"} {
			k.ok(`{"op":"size_of","python":"`+version+`","value":`+tc.value+`}`, "bytes", tc.wide)
		}
		k.ok(`{"op":"size_of","value":`+tc.value+`}`, "bytes", tc.wide)
	}
	const unsized = "reduce() of empty iterable with no initial value"
	k.fails("invalid", `{"op":"size_of","value":{"type":"item","fields":[]}}`, unsized)
	k.fails("invalid", `{"op":"size_of","value":`+item(`[[],[]]`)+`}`, unsized)
	k.refuses("invalid", `{"op":"size_of"}`, `field "value" is missing`)
	k.refuses("invalid", `{"op":"size_of","value":null}`, `field "value" is missing`)
	k.refuses("invalid", `{"op":"size_of","value":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)+`}`, `field "value": json: cannot unmarshal array`)
	k.refuses("invalid", `{"op":"size_of","value":`+item(`1`)+`,"python":"3.8"}`, `field "python": lrusync: invalid argument: Python version "3.8"`)
	k.refuses("unsupported", `{"op":"size_of","value":`+pickleA+`}`, "the size of a pickled object is known to Python only")
}

// A layout needs no data, but bytes that are asked for by "xof" take memory all
// the same.
func TestReserveWithHugeXOFIsRefused(t *testing.T) {
	a := New()
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	answer := a.Do([]byte(`{"op":"size_of","python":"3.11","value":{"type":"item","fields":[{"name":"x","data":{"dtype":"uint8","shape":[1099511627776],"xof":"a"},"field":{"kind":"batched"}}]}}`))
	require.Contains(t, string(answer), `"invalid"`)
	p, err := parseParams([]byte(`{"value":{"type":"tensor","data":{"dtype":"uint8","shape":[1099511627776],"xof":"a"}}}`))
	require.NoError(t, err)
	p.allow("value")
	p.budget = 1 << 20
	defer func() { require.ErrorContains(t, recover().(refusal), "are left for this request") }()
	p.value("value", true)
}
