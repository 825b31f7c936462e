package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
)

// TestGoldenMessagesByAgent: what vLLM encoded is decoded, shown as JSON, and
// encoded to the same bytes from that JSON.
func TestGoldenMessagesByAgent(t *testing.T) {
	counts := map[string]int{}
	for _, f := range goldentest.Files(t, "requests") {
		var data map[string]json.RawMessage
		f.Decode(t, &data)
		for _, release := range f.Releases {
			k := newTalker(t)
			for section, kind := range map[string]string{"requests": "request", "outputs": "outputs"} {
				var rows []struct {
					Name   string
					Frames []json.RawMessage
				}
				require.NoError(t, json.Unmarshal(data[section], &rows))
				for _, r := range rows {
					frames, err := json.Marshal(r.Frames)
					require.NoError(t, err)
					if len(r.Frames) > 1 {
						counts["have a tensor that replies show by its hash"]++
						continue
					}
					shown, err := json.Marshal(k.ok(fmt.Sprintf(`{"op":"%s.decode","generation":%q,"frames":%s}`, kind, release, frames))[kind])
					require.NoError(t, err)
					line := fmt.Sprintf(`{"op":"%s.encode","generation":%q,"%s":%s}`, kind, release, kind, shown)
					switch {
					case kind == "request" && !strings.HasPrefix(r.Name, "sp_"):
						text := `"task"` // is missing in the parameters of pooling
						if strings.Contains(string(shown), `"pooling_params":null`) {
							text = "pooling_params"
						}
						k.refuses("invalid", line, text)
						counts["have no parameters or no task, which no engine takes"]++
					default:
						k.ok(line, "frames", string(frames))
						counts["same after both ways"]++
					}
				}
			}
		}
	}
	require.Greater(t, counts["same after both ways"], 150)
	t.Logf("%v", counts)
}

func TestRequestFamily(t *testing.T) {
	k := newTalker(t)
	line := func(more string) string {
		return `{"op":"request.encode","request":{"request_id":"r","prompt_token_ids":[1,2],"sampling_params":{}` + more + `}}`
	}
	out := k.ok(line(`,"arrival_time":1.5,"mm_features":[{"data":{"type":"item","fields":[{"name":"x","data":{"dtype":"uint8","shape":[300],"xof":"s"},` +
		`"field":{"kind":"batched"}}]},"modality":"image","identifier":"i","offset":0,"length":2,"is_embed":{"$tensor":{"dtype":"bool","shape":[2],"hex":"0100"}}}],` +
		`"kv_hints":{"protocol_version":"1","message_id":"m","actions":[{"action_id":"a","action_type":"t","action_version":"v","payload":{"x":{"$bytes":"00ff"},` +
		`"y":{"$float":"-inf"},"z":{"$map":[[1,"one"]]},"u":{"$map":[["$a",1.0]]}}}]},"eos_token_id":7`))
	frames, err := json.Marshal(out["frames"])
	require.NoError(t, err)
	require.Len(t, out["frames"], 2)
	got := k.ok(`{"op":"request.decode","frames":` + string(frames) + `}`)["request"].(map[string]any)
	part := func(name, want string) {
		t.Helper()
		b, err := json.Marshal(got[name])
		require.NoError(t, err)
		require.JSONEq(t, want, string(b))
	}
	part("arrival_time", `1.5`)
	part("eos_token_id", `7`)
	part("sampling_params", `{"_all_stop_token_ids":[7]}`)
	part("pooling_params", `null`)
	part("kv_hints", `{"protocol_version":"1","message_id":"m","actions":[{"action_id":"a","action_type":"t","action_version":"v","payload":`+
		`{"x":{"$bytes":"00ff"},"y":{"$float":"-inf"},"z":{"$map":[[1,"one"]]},"u":{"$map":[["$a",1.0]]}}}]}`)
	feature := got["mm_features"].([]any)[0].(map[string]any)
	require.Contains(t, feature["data"].(map[string]any)["fields"].([]any)[0].(map[string]any)["data"], "sha256")

	for _, c := range []struct{ more, text string }{
		{`,"promt":1`, `field "request": unknown field "promt"`},
		{`,"sampling_params":1`, `field "request": json: cannot unmarshal number`},
		{`,"sampling_params":{"top_p":2.0}`, `"top_p"`},
		{`,"sampling_params":{"top_k":1.0}`, `"top_k"`},
		{`,"mm_features":[{"data":1}]`, "the data of a feature: json: cannot unmarshal number"},
		{`,"mm_features":[{"data":{"type":"tensor"}}]`, "the data of a feature"},
		{`,"mm_features":[{"is_embed":1}]`, "is_embed"},
		{`,"prompt_embeds":1`, "prompt_embeds"},
		{`,"arrival_time":"x"`, `field "request": "x" is no number`},
		{`,"client_index":-1`, "client_index"},
		{`,"prompt_token_ids":[-1]`, `field "request": json: cannot unmarshal number -1`},
		{`,"sampling_params":{"extra_args":{"$bytes":"x"}}`, `field "request": encoding/hex: invalid byte: U+0078 'x'`},
		{`,"sampling_params":{"seed":{"$float":"1"}}`, `field "request": $float "1"`},
		{`,"sampling_params":{"seed":{"$other":"1"}}`, `field "request": unknown form "$other"`},
		{`,"sampling_params":{"seed":99999999999999999999}`, `field "request": 99999999999999999999 is no integer of 64 bits`},
		{`,"sampling_params":{"extra_args":{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`, `field "request": a value is nested more than 64 deep`},
		{`,"sampling_params":{"extra_args":{"a":` + strings.Repeat(`{"$map":[[1,`, 100) + "1" + strings.Repeat("]]}", 100) + `}}`, `field "request": a value is nested more than 64 deep`},
		{`,"prompt_embeds":{"$tensor":{"dtype":"float31","shape":[1,1],"hex":""}}`, `field "request": unknown dtype "float31"`},
		{`,"prompt_embeds":{"$tensor":{"dtype":"uint8","hex":""}}`, `field "request": $tensor without a shape`},
		{`,"prompt_embeds":{"$tensor":{"dtype":"uint8","shape":[2,1],"hex":"00"}}`, "uint8 [2 1]"},
	} {
		t.Run(c.text, func(t *testing.T) { k.in(t).refuses("invalid", line(c.more), c.text) })
	}
	k.ok(`{"op":"request.fields","generation":"0.13.0"}`, "ready", `[]`, "lora",
		`["lora_name","lora_int_id","lora_path","lora_local_path","long_lora_max_len","base_model_name","tensorizer_config_dict"]`)
	k.refuses("unsupported", `{"op":"request.fields","generation":"0.99.0"}`, `"0.99.0"`)
	k.refuses("invalid", `{"op":"request.encode"}`, `field "request" is missing`)
	k.refuses("unsupported", `{"op":"request.encode","generation":"1.0","request":{}}`, `"1.0"`)
	k.refuses("corrupt", `{"op":"request.decode","frames":["c0"]}`, "request at byte 0")
	k.refuses("invalid", `{"op":"request.decode","frames":["x"]}`, `field "frames": encoding/hex: invalid byte: U+0078 'x'`)
	k.refuses("invalid", `{"op":"request.encode","generation":"0.12.0","request":{"prompt_token_ids":[1],"sampling_params":{},"resumable":true}}`, "resumable")
}

func TestOutputsFamily(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"outputs.decode","frames":["454e47494e455f434f52455f44454144"]}`, "dead", `true`)
	out := k.ok(`{"op":"outputs.encode","outputs":{"outputs":[{"request_id":"r","new_token_ids":[5],"finish_reason":0,"stop_reason":"x",` +
		`"new_logprobs":[{"$ndarray":{"dtype":"<i4","shape":[1],"hex":"01000000"}},null],"events":[{"type":2,"timestamp":2.5}],"error":{"code":"c","message":"m","retryable":true}}],` +
		`"utility_output":{"call_id":18446744073709551615,"result":[1,2.0]}}}`)
	frames, err := json.Marshal(out["frames"])
	require.NoError(t, err)
	got := k.ok(`{"op":"outputs.decode","frames":` + string(frames) + `}`)["outputs"].(map[string]any)
	b, err := json.Marshal(got["utility_output"])
	require.NoError(t, err)
	require.JSONEq(t, `{"call_id":18446744073709551615,"failure_message":null,"result":[1,2.0],"result_type":null}`, string(b))
	one := got["outputs"].([]any)[0].(map[string]any)
	require.Equal(t, "x", one["stop_reason"])
	b, err = json.Marshal(one["new_logprobs"].([]any)[0])
	require.NoError(t, err)
	require.Contains(t, string(b), `"hex":"01000000"`)
	// A part that can't be read: 0.33.0's array of an output, events = 5.
	got = k.ok(`{"op":"outputs.decode","frames":["920093` + `92a17291c0` + `97a17390c0c0c0a178c0` + `98a17490c0c0c0c0c005"]}`)["outputs"].(map[string]any)
	list := got["outputs"].([]any)
	require.Contains(t, list[0].(map[string]any)["failed"], "new_token_ids")
	require.Contains(t, list[1].(map[string]any)["failed"], "finish_reason")
	require.Contains(t, fmt.Sprint(list[2].(map[string]any)["unread"]), "events")
	k.refuses("corrupt", `{"op":"outputs.decode","frames":["80"]}`, "outputs message at byte 0")
	for _, c := range []struct{ more, text string }{
		{`{"bogus":1}`, `field "outputs": unknown field "bogus"`},
		{`{"outputs":[{"routed_experts":1}]}`, "routed_experts"},
		{`{"outputs":[{"pooling_output":1}]}`, "pooling_output"},
		{`{"timestamp":null}`, `field "outputs": null is no number`},
	} {
		t.Run(c.text, func(t *testing.T) { k.in(t).refuses("invalid", `{"op":"outputs.encode","outputs":`+c.more+`}`, c.text) })
	}
	k.refuses("invalid", `{"op":"outputs.encode","generation":"0.31.0","outputs":{"weight_version":"x"}}`, "weight_version")
}
