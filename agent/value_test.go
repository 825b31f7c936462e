package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
)

func TestValuesRoundTrip(t *testing.T) {
	k := newTalker(t)
	item := `{"type":"item","fields":[
		{"name":"px","data":{"dtype":"bfloat16","shape":[2,2],"hex":"0001020304050607"},"field":{"kind":"flat","slices":[[[0,3,null]],[[3,-7,2]]],"dim":1}},
		{"name":"n","data":[1,-2,18446744073709551615,1.5,2.0,true,false,[],{"dtype":"bool","shape":[3],"xof":"s"}],"field":{"kind":"shared","batch_size":4,"keep_on_cpu":true}},
		{"name":"z","data":null,"field":{"kind":"batched"}},
		{"name":"f","data":7,"field":{"kind":"flat","slices":[[null,null,null],[0,3,null]],"dim":0}}]}`
	for _, g := range goldentest.ItemForms() {
		generation := g.Version
		enc := k.ok(`{"op":"serde.encode","generation":"` + generation + `","value":` + item + `}`)
		frames, err := json.Marshal(enc["frames"])
		require.NoError(t, err)
		dec := k.ok(`{"op":"serde.decode","kind":"item","generation":"` + generation + `","frames":` + string(frames) + `}`)
		fields := dec["value"].(map[string]any)["fields"].([]any)
		require.Len(t, fields, 4)
		got, err := json.Marshal(fields[1].(map[string]any)["data"])
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(got), `[1,-2,18446744073709551615,1.5,2.0,true,false,[],{"dtype":"bool","hex":"0`), "%s", got)
		field, err := json.Marshal([]any{fields[0].(map[string]any)["field"], fields[3].(map[string]any)["field"]})
		require.NoError(t, err)
		require.JSONEq(t, `[{"kind":"flat","slices":[[[0,3,null]],[[3,-7,2]]],"dim":1},{"kind":"flat","slices":[[null,null,null],[0,3,null]],"dim":0}]`, string(field))
	}
	k.ok(`{"op":"serde.encode","value":{"type":"tensor","data":{"dtype":"uint8","shape":[3],"hex":"010203"}},"threshold":0}`, "frames", `["93a575696e7438910301","010203"]`)
	k.ok(`{"op":"serde.encode","value":{"type":"item","fields":[{"name":"x","data":[{"float":"nan"},{"float":"-inf"}],"field":{"kind":"batched"}}]}}`)
	k.refuses("invalid", `{"op":"serde.encode","value":{"type":"item","fields":[{"name":"x","data":{"float":"1"},"field":{"kind":"batched"}}]}}`, `data: float "1"`)
	k.ok(`{"op":"serde.metadata","hex":"8005951c000000000000008c0654656e736f72944a701101005d94284b184a581101006587942e"}`,
		"type", `"Tensor"`, "nbytes", `70000`, "lens", `[24,69976]`)
	k.ok(`{"op":"serde.metadata","hex":"8005950e000000000000008c056279746573944b154e87942e"}`, "lens", `null`)
	k.ok(`{"op":"address_item","address":100,"id":3,"generation":"0.31.0"}`,
		"hex", `"82a76164647265737382a46461746164a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2ac6d6f6e6f746f6e69635f696482a46461746103a56669656c6492a76261746368656481ab6b6565705f6f6e5f637075c2"`)
	k.refuses("corrupt", `{"op":"serde.decode","kind":"item","frames":["dd02000000"]}`, "main document at byte 0")
	k.refuses("corrupt", `{"op":"serde.metadata","hex":"80"}`, "metadata pickle at byte 1")
	for _, c := range []struct{ bad, text string }{
		{`{"type":"nope"}`, `value: unknown type "nope"`},
		{`{"type":"tensor"}`, "value of type tensor: data is not a tensor"},
		{`{"type":"tensor","data":5}`, "value of type tensor: data is not a tensor"},
		{`{"type":"pickle"}`, `value of type pickle: field "hex" is missing`},
		{`{"type":"pickle","hex":"0"}`, `field "value": encoding/hex: odd length hex string`},
		{`[]`, `field "value": json: cannot unmarshal array`},
		{`5`, `field "value": json: cannot unmarshal number`},
		{`null`, `field "value" is missing`},
		{`{"type":"tensor","data":{"dtype":"uint8","shape":[1099511627776],"xof":"x"}}`, "tensor of 1099511627776 bytes, at most 268435456 are left for this request"},
		{`{"type":"tensor","data":{"dtype":"uint8","shape":[-1],"xof":"x"}}`, "shape [-1]"},
		{`{"type":"item","fields":[{"name":"x","data":[` + strings.Repeat(`{"dtype":"uint8","shape":[1048576],"xof":"x"},`, 256) + `{"dtype":"uint8","shape":[1],"xof":"x"}],"field":{"kind":"batched"}}]}`, "tensor of 1 bytes, at most 0 are left for this request"},
		{`{"type":"tensor","data":{"dtype":"float128","shape":[1],"xof":"x"}}`, `tensor: unknown dtype "float128"`},
		{`{"type":"tensor","data":{"dtype":"uint8","shape":[2],"hex":"00"}}`, "tensor: 1 bytes of data, its shape needs 2"},
		{`{"type":"tensor","data":{"dtype":"uint8","shape":[2]}}`, `tensor: "hex" or "xof" is needed`},
		{`{"type":"item","fields":[{"name":"x","data":1}]}`, `item: field "x" has no "field"`},
		{`{"type":"item","fields":[{"name":"x","data":1,"field":{"kind":"round"}}]}`, `unknown kind of field "round"`},
		{`{"type":"item","fields":[{"name":"x","data":1,"field":{"kind":"flat","slices":[[[0,1]]]}}]}`, "flat field: a slice has 2 bounds"},
		{`{"type":"item","fields":[{"name":"x","data":1,"field":{"kind":"flat","slices":[[0,1,null],[[0,1,null]]]}}]}`, "flat field: slice [[0,1,null]]"},
		{`{"type":"item","fields":[{"name":"x","data":123456789012345678901234567890,"field":{"kind":"batched"}}]}`, "data 123456789012345678901234567890"},
		{`{"type":"item","fields":[{"name":"x","data":"text","field":{"kind":"batched"}}]}`, `data "text"`},
		{`{"type":"item","fields":[{"name":"x","data":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `,"field":{"kind":"batched"}}]}`, "data is nested more than 64 deep"},
	} {
		t.Run(c.text, func(t *testing.T) { k.in(t).refuses("invalid", `{"op":"serde.encode","value":`+c.bad+`}`, c.text) })
	}
}
