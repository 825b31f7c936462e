package agent

import (
	"testing"
)

func TestEncoderFamily(t *testing.T) {
	const two = `"request":"r","inputs":[{"identifier":"a","embeds":4},{"identifier":"b","embeds":3}]`
	const other = `"request":"s","inputs":[{"identifier":"c","embeds":6}]`
	k := newTalker(t)
	k.ok(`{"op":"encoder.new","encoder":"e","capacity":8}`)
	k.refuses("invalid", `{"op":"encoder.new","encoder":"e","capacity":8}`, `encoder "e" exists`)
	k.refuses("invalid", `{"op":"encoder.new","encoder":"f","capacity":-1}`, "a capacity of -1")
	k.refuses("invalid", `{"op":"encoder.new","encoder":"f","capacity":1,"rule":"lru"}`, `"lru"`)
	k.refuses("invalid", `{"op":"encoder.new","encoder":"f","capacity":1,"costs":{}}`, "no costs")
	k.refuses("unsupported", `{"op":"encoder.new","encoder":"f","capacity":1,"generation":"9.9.9"}`, "9.9.9")
	k.ok(`{"op":"encoder.check","encoder":"e",`+two+`,"input":0}`, "hit", `false`)
	k.ok(`{"op":"encoder.can_allocate","encoder":"e",`+two+`,"input":0,"budget":3}`, "fits", `false`)
	k.ok(`{"op":"encoder.can_allocate","encoder":"e",`+two+`,"input":0,"budget":4,"scheduled":5}`, "fits", `false`)
	k.ok(`{"op":"encoder.can_allocate","encoder":"e",`+two+`,"input":0,"budget":4}`, "fits", `true`)
	k.ok(`{"op":"encoder.allocate","encoder":"e",` + two + `,"input":0}`)
	k.refuses("invalid", `{"op":"encoder.allocate","encoder":"e",`+two+`,"input":0}`, `"a" is cached already`)
	k.ok(`{"op":"encoder.allocate","encoder":"e",` + two + `,"input":1}`)
	k.ok(`{"op":"encoder.inputs","encoder":"e",`+two+`}`, "cached", `[0,1]`)
	k.ok(`{"op":"encoder.inputs","encoder":"e",`+other+`}`, "cached", `[]`)
	k.ok(`{"op":"encoder.embeds","encoder":"e","identifier":"b"}`, "found", `true`, "embeds", `3`)
	k.ok(`{"op":"encoder.embeds","encoder":"e","identifier":"c"}`, "found", `false`)
	k.ok(`{"op":"encoder.state","encoder":"e"}`, "capacity", `8`, "free", `1`, "freeable", `1`, "cached", `{"a":["r"],"b":["r"]}`, "released", `[]`,
		"pinned", `[]`, "freed", `[]`)
	k.ok(`{"op":"encoder.free_input","encoder":"e",` + two + `,"input":1}`)
	k.ok(`{"op":"encoder.free","encoder":"e",` + two + `}`)
	k.ok(`{"op":"encoder.pin","encoder":"e","identifier":"b"}`, "pinned", `true`)
	k.ok(`{"op":"encoder.pin","encoder":"e","identifier":"c"}`, "pinned", `false`)
	k.ok(`{"op":"encoder.can_allocate","encoder":"e",`+other+`,"input":0,"budget":9}`, "fits", `false`)
	k.ok(`{"op":"encoder.unpin","encoder":"e","identifier":"b"}`, "unpinned", `true`)
	k.ok(`{"op":"encoder.unpin","encoder":"e","identifier":"b"}`, "unpinned", `false`)
	k.ok(`{"op":"encoder.state","encoder":"e"}`, "cached", `{"a":[],"b":[]}`, "released", `[["a",4],["b",3]]`)
	k.ok(`{"op":"encoder.can_allocate","encoder":"e",`+other+`,"input":0,"budget":9}`, "fits", `true`)
	k.ok(`{"op":"encoder.freed","encoder":"e"}`, "freed", `["a","b"]`)
	k.ok(`{"op":"encoder.freed","encoder":"e"}`, "freed", `[]`)
	k.refuses("invalid", `{"op":"encoder.check","encoder":"e",`+other+`,"input":1}`, `input 1 of request "s"`)
	k.refuses("invalid", `{"op":"encoder.check","encoder":"e","request":"s","inputs":[{"identifier":"c"}],"input":0}`, "input 0 needs identifier and embeds")
	k.refuses("invalid", `{"op":"encoder.check","encoder":"e","request":"s","inputs":[{"identifier":"c","embeds":1,"size":2}],"input":0}`, `"size"`)
	k.ok(`{"op":"encoder.reset","encoder":"e"}`)
	k.ok(`{"op":"encoder.state","encoder":"e"}`, "free", `8`)
	k.ok(`{"op":"encoder.close","encoder":"e"}`)
	k.refuses("invalid", `{"op":"encoder.state","encoder":"e"}`, `no encoder "e"`)

	k.ok(`{"op":"encoder.new","encoder":"c","capacity":8,"rule":"cost","costs":{"a":9,"b":0.5}}`)
	k.ok(`{"op":"encoder.new","encoder":"d","capacity":4,"rule":"cost"}`)
	k.ok(`{"op":"encoder.new","encoder":"o","capacity":4}`)
	for e, freed := range map[string]string{"d": `["a"]`, "o": `["none","a"]`} { // by cost, what makes no room stays
		none := `"request":"n","inputs":[{"identifier":"none","embeds":0},{"identifier":"a","embeds":4},{"identifier":"b","embeds":4}]`
		k.ok(`{"op":"encoder.allocate","encoder":"` + e + `",` + none + `,"input":0}`)
		k.ok(`{"op":"encoder.allocate","encoder":"` + e + `",` + none + `,"input":1}`)
		k.ok(`{"op":"encoder.free","encoder":"` + e + `",` + none + `}`)
		k.ok(`{"op":"encoder.can_allocate","encoder":"`+e+`",`+none+`,"input":2,"budget":9}`, "fits", `true`)
		k.ok(`{"op":"encoder.freed","encoder":"`+e+`"}`, "freed", freed)
	}
	k.ok(`{"op":"encoder.allocate","encoder":"c",` + two + `,"input":0}`)
	k.ok(`{"op":"encoder.allocate","encoder":"c",` + two + `,"input":1}`)
	k.ok(`{"op":"encoder.free","encoder":"c",` + two + `}`)
	k.ok(`{"op":"encoder.can_allocate","encoder":"c","request":"s","inputs":[{"identifier":"c","embeds":3}],"input":0,"budget":9}`, "fits", `true`)
	k.ok(`{"op":"encoder.freed","encoder":"c"}`, "freed", `["b"]`)
}
