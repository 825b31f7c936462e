package agent

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStoreFamily(t *testing.T) {
	k := newTalker(t)
	name := fmt.Sprintf("ringcache-test-agent-%d", os.Getpid())
	k.ok(`{"op":"store.create","store":"w","size":200,"max_object":120,"readers":1,"name":"`+name+`","secret":`+goldenSecret+`}`,
		"name", `"`+name+`"`, "segment_bytes", `232`)
	k.refuses("exists_segment", `{"op":"store.create","store":"w2","size":200,"max_object":120,"readers":1,"name":"`+name+`"}`, name)
	k.refuses("invalid", `{"op":"store.create","store":"w","size":200,"max_object":120,"readers":1}`, `store "w" exists`)
	k.refuses("unsupported", `{"op":"store.create","store":"w2","size":200,"max_object":120,"readers":1,"policy":"nope"}`, `policy "nope"`)
	k.refuses("invalid", `{"op":"store.create","store":"w2","size":200,"max_object":120,"readers":1,"secret":"00"}`, `field "secret": 1 bytes`)

	const sig = "c715cc92abcdd866e95d1904798121958bf490ba2906e6b2a95fd57698bc9e71" // golden ring_images
	k.ok(`{"op":"store.put","store":"w","key":"a","value":`+pickleA+`}`, "address", `0`, "id", `0`, "signature", `"`+sig+`"`)
	k.fails("exists", `{"op":"store.put","store":"w","key":"a","value":`+pickleA+`}`, "Key 'a' already exists in the storage.")
	k.fails("too_large", `{"op":"store.put","store":"w","key":"b","value":{"type":"pickle","hex":"`+strings.Repeat("00", 121)+`"}}`,
		"Serialized object size (150 bytes) exceeds max object size (120 bytes)")
	k.ok(`{"op":"store.cached","store":"w","key":"a"}`, "cached", `true`)
	k.ok(`{"op":"store.cached","store":"w","key":"b"}`, "cached", `false`)
	k.ok(`{"op":"store.lookup","store":"w","key":"a","request":"r1"}`, "address", `0`, "signature", `"`+sig+`"`)
	k.fails("not_found", `{"op":"store.lookup","store":"w","key":"b"}`, "'b'")
	k.ok(`{"op":"store.signature","store":"w","key":"a"}`, "signature", `"`+sig+`"`)
	k.refuses("not_found", `{"op":"store.signature","store":"w","key":"b"}`, `key "b"`)
	list, err := json.Marshal(intsOf(sig))
	require.NoError(t, err)
	k.ok(`{"op":"store.verify","store":"w","key":"a","address":0,"id":0,"signature":"` + sig + `"}`)
	k.ok(`{"op":"store.verify","store":"w","key":"a","address":0,"id":0,"signature":` + string(list) + `}`)
	for _, bad := range []string{`"00"`, `"zz"`, `[1,2]`, `[256]`, `[-1]`, `[1.5]`, `[true]`, `[null]`, `7`, `{}`, `""`, `[]`} {
		k.fails("bad_signature", `{"op":"store.verify","store":"w","key":"a","address":0,"id":0,"signature":`+bad+`}`, "Invalid SHM handle signature for cache key.")
	}
	k.fails("bad_signature", `{"op":"store.verify","store":"w","key":"a","address":0,"id":0,"signature":null}`, "Missing SHM handle signature for cache key.")

	k.ok(`{"op":"store.open","store":"r","name":"` + name + `","size":200,"max_object":120,"readers":1}`)
	k.ok(`{"op":"store.get","store":"r","address":0,"id":0,"key":"a","signature":"`+sig+`"}`, "value", pickleA)
	k.fails("bad_signature", `{"op":"store.get","store":"r","address":0,"id":0,"signature":"`+sig+`"}`, "Missing SHM handle signature for cache key.")
	k.refuses("bad_signature", `{"op":"store.get","store":"r","address":0,"id":0,"key":"b","signature":"`+sig+`"}`, `key "b"`)
	k.ok(`{"op":"store.verify","store":"r","key":"a","address":0,"id":0,"signature":"` + sig + `"}`)
	k.ok(`{"op":"store.touch","store":"r","key":"a","address":0,"id":0,"signature":"` + sig + `"}`)
	k.ok(`{"op":"store.get","store":"w","address":0,"id":0}`, "value", pickleA)
	k.fails("stale", `{"op":"store.get","store":"w","address":0,"id":1}`, "Data for address:id '0:1' has been modified or is invalid.")
	k.refuses("unsupported", `{"op":"store.clear","store":"r"}`, "store.clear is for the writer")
	k.refuses("unsupported", `{"op":"store.unlink","store":"r"}`, "only the writer may remove a segment")
	k.ok(`{"op":"store.touch","store":"w","key":"a"}`)
	k.ok(`{"op":"store.state","store":"w"}`, "key_index", `{"a":[0,0]}`, "writer_flag", `{"0":2}`, "reader_flag", `{"0":0}`, "touched", `[0]`,
		"used_bytes", `55`, "ring", `{"start":0,"end":55,"id_start":0,"id_end":1,"metadata":{"0":0}}`)
	k.ok(`{"op":"store.release_touches","store":"w"}`)
	k.ok(`{"op":"store.free_unused","store":"w"}`, "freed", `[]`)
	k.ok(`{"op":"store.peek","store":"w","offset":32,"length":12}`, "hex", `"000000003700000000000000"`)
	k.refuses("invalid", `{"op":"store.peek","store":"w","offset":232,"length":1}`, "1 bytes from 232 on: the segment has 232, and one look shows at most 67108864")
	k.refuses("invalid", `{"op":"store.peek","store":"w","offset":-1,"length":1}`, "1 bytes from -1 on: the segment has 232, and one look shows at most 67108864")
	k.ok(`{"op":"store.clear","store":"w"}`)
	k.ok(`{"op":"store.close","store":"r"}`)
	k.refuses("closed", `{"op":"store.get","store":"r","address":0,"id":0,"key":"a","signature":"`+sig+`"}`, `store "r"`)
	k.ok(`{"op":"store.unlink","store":"w"}`)
	k.refuses("not_found", `{"op":"store.open","store":"r2","name":"`+name+`","size":200,"max_object":120,"readers":1}`, name)
	k.ok(`{"op":"store.close","store":"w"}`)
	k.ok(`{"op":"store.close","store":"w"}`)
	k.ok(`{"op":"store.unlink","store":"w"}`)
	k.refuses("closed", `{"op":"store.state","store":"w"}`, `store "w"`)
	k.ok(`{"op":"store.create","store":"w","size":200,"max_object":120,"readers":1}`)
	k.refuses("not_found", `{"op":"store.open","store":"r2","name":"x","size":200,"max_object":1,"readers":1,"lock":"/mp-nothere"}`, `no semaphore "/mp-nothere"`)
	put := `{"op":"store.put","store":"w","key":"%s","value":{"type":"pickle","hex":"` + strings.Repeat("00", 80) + `"}}`
	k.ok(fmt.Sprintf(put, "1"))
	k.refuses("full", fmt.Sprintf(put, "2"), `key "1"`)
	k.ok(`{"op":"store.create","store":"tiny","size":60,"max_object":120,"readers":1}`)
	k.fails("full", `{"op":"store.put","store":"tiny","key":"a","value":{"type":"pickle","hex":"`+strings.Repeat("00", 80)+`"}}`,
		"Not enough space in the data buffer, try calling free_buf() to free up space")
}

func intsOf(hexText string) []int {
	b, _ := hex.DecodeString(hexText)
	var out []int
	for _, x := range b {
		out = append(out, int(x))
	}
	return out
}

func TestWriterThatCounts(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"store.create","store":"w","size":4096,"max_object":1000,"readers":2,"lock":true,"generation":"0.31.0"}`)
	k.ok(`{"op":"store.put","store":"w","key":"a","value":` + pickleA + `}`)
	k.ok(`{"op":"store.get","store":"w","address":0,"id":0}`)
	k.ok(`{"op":"store.touch","store":"w","key":"a","address":0,"id":0}`)
	k.ok(`{"op":"store.state","store":"w"}`, "reader_flag", `{"0":1}`, "writer_flag", `{"0":1}`)
	k.ok(`{"op":"store.get","store":"w","address":0,"id":0}`)
	k.ok(`{"op":"store.touch","store":"w","key":"a","address":0,"id":0}`)
	k.ok(`{"op":"store.state","store":"w"}`, "reader_flag", `{"0":3}`)
	k.refuses("unsupported", `{"op":"store.signature","store":"w","key":"a"}`, "vLLM 0.31.0 has no signatures")
	k.ok(`{"op":"store.clear","store":"w"}`)
	k.ok(`{"op":"store.put","store":"w","key":"b","value":`+pickleA+`}`, "id", `0`)
}

func TestReserveFillPublish(t *testing.T) {
	k := newTalker(t)
	k.ok(`{"op":"store.create","store":"w","size":4096,"max_object":1000,"readers":1}`)
	value := `{"type":"item","fields":[{"name":"x","data":{"dtype":"uint8","shape":[300]},"field":{"kind":"batched"}}]}`
	k.ok(`{"op":"store.reserve","store":"w","key":"a","value":`+value+`}`, "address", `0`, "id", `0`)
	k.refuses("exists", `{"op":"store.reserve","store":"w","key":"a","value":`+value+`}`, `key "a"`)
	k.ok(`{"op":"store.fill","store":"w","key":"a","field":"x","offset":0,"hex":"` + strings.Repeat("07", 300) + `"}`)
	k.ok(`{"op":"store.fill","store":"w","key":"a","field":"x","offset":299,"hex":"08"}`)
	k.refuses("invalid", `{"op":"store.fill","store":"w","key":"a","field":"x","offset":299,"hex":"0808"}`, `field "x" has 300 bytes to fill, not 2 from 299 on`)
	k.refuses("invalid", `{"op":"store.fill","store":"w","key":"a","field":"y","offset":0,"hex":"08"}`, `field "y" has 0 bytes to fill, not 1 from 0 on`)
	k.refuses("invalid", `{"op":"store.fill","store":"w","key":"b","field":"x","offset":0,"hex":"08"}`, `key "b" is not reserved`)
	k.ok(`{"op":"store.publish","store":"w","key":"a"}`, "id", `0`)
	k.refuses("invalid", `{"op":"store.publish","store":"w","key":"a"}`, `key "a" is not reserved`)
	k.ok(`{"op":"store.reserve","store":"w","key":"b","value":` + value + `}`)
	k.ok(`{"op":"store.discard","store":"w","key":"b"}`)
	k.ok(`{"op":"store.reserve","store":"w","key":"b","value":` + value + `}`) // left open: closing discards it
}
