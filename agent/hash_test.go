package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmhash"
)

// hashed sends kwargs and requires the hash of the same values in Go.
func (k *talker) hashed(kwargs string, args ...mmhash.Entry) {
	k.t.Helper()
	h, err := mmhash.NewHasher(mmhash.Options{})
	require.NoError(k.t, err)
	want, err := h.Hex(args...)
	require.NoError(k.t, err)
	k.ok(`{"op":"hash","algorithm":"blake3","kwargs":`+kwargs+`}`, "hex", `"`+want+`"`)
}

func TestHash(t *testing.T) {
	k := newTalker(t)
	// From the golden files.
	k.ok(`{"op":"hash","algorithm":"blake3","kwargs":[["x",{"str":"test"}]]}`,
		"hex", `"3230f2f2069aac949f27d16a251abab6419dc97b0d384eeaf56c45d23302680d"`)
	k.ok(`{"op":"hash","algorithm":"SHA256","kwargs":[["x",{"str":"test"}]]}`,
		"hex", `"5d0731b2653d6e65b192b5a6f5e30bd24bf3e3015beb974af19470f38159fe3d"`)
	k.ok(`{"op":"hash","algorithm":"blake3","kwargs":[["image",{"media":{"kind":"image","bytes":"4a504547"}}],["model_id",{"str":"m"}]],"generation":"0.13.0"}`,
		"hex", `"06a1075ac5e1d0c50e8545352840d0190fabcad74707ecd2bfc268b1ae6080dc"`)
	k.ok(`{"op":"hash","kwargs":[]}`, "hex", `"af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"`)

	x := func(v mmhash.Value) mmhash.Entry { return mmhash.Arg("x", v) }
	k.hashed(`[["x",{"bytes":"00ff"}],["y",{"none":true}]]`, x(mmhash.Bytes("\x00\xff")), mmhash.Arg("y", nil))
	k.hashed(`[["x",{"list":[{"int":"-1"},{"int":"18446744073709551615"},{"bool":true},{"bool":false},{"list":[]}]}]]`,
		x(mmhash.List{mmhash.Int(-1), mmhash.Uint(1<<64 - 1), mmhash.Bool(true), mmhash.Bool(false), mmhash.List{}}))
	k.hashed(`[["x",{"map":[["b",{"float":"0x1.8p+0"}],["a",{"float":"-inf"}],["n",{"float":"nan"}],["e",{"map":[]}]]}]]`,
		x(mmhash.Map{mmhash.Arg("b", mmhash.Float(1.5)), mmhash.Arg("a", mmhash.Bytes("\x00\x00\x00\x00\x00\x00\xf0\xff")),
			mmhash.Arg("n", mmhash.Bytes("\x00\x00\x00\x00\x00\x00\xf8\x7f")), mmhash.Arg("e", mmhash.Map{})}))
	k.hashed(`[["x",{"ndarray":{"dtype":"<f4","shape":[],"hex":"0000803f"}}]]`, x(&mmhash.Array{DType: "<f4", Data: []byte{0, 0, 0x80, 0x3f}}))
	k.hashed(`[["x",{"tensor":{"dtype":"bfloat16","shape":[2],"hex":"803f0040"}}]]`,
		x(&mmhash.Tensor{DType: "bfloat16", Shape: []int{2}, Data: []byte{0x80, 0x3f, 0, 0x40}}))

	bits := &mmhash.Image{Mode: "1", Width: 10, Height: 2, Pixels: []byte{
		0xff, 0, 0, 0, 0, 0, 0, 0xff, 0, 0xff,
		0, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0,
	}}
	k.hashed(`[["x",{"image":{"mode":"1","size":[10,2],"hex":"81404080"}}]]`, x(bits))
	k.hashed(`[["x",{"image":{"mode":"1","size":[0,2],"hex":""}}]]`, x(&mmhash.Image{Mode: "1", Height: 2}))
	p := &mmhash.Image{Mode: "P", Width: 2, Height: 1, Pixels: []byte{0, 1}, Palette: &mmhash.Palette{Bytes: []byte{1, 2, 3}}}
	k.hashed(`[["x",{"image":{"mode":"P","size":[2,1],"hex":"0001","palette":"010203"}}]]`, x(p))
	p.Palette = &mmhash.Palette{Type: mmhash.PaletteByteArray}
	k.hashed(`[["x",{"image":{"mode":"P","size":[2,1],"hex":"0001"}}]]`, x(p))

	k.hashed(`[["x",{"media":{"kind":"image","bytes":"ff","io_config":{"map":[["image_mode",{"str":"RGB"}]]}}}]]`,
		x(&mmhash.EncodedImage{Data: []byte{0xff}, IOConfig: mmhash.Map{mmhash.Arg("image_mode", mmhash.Str("RGB"))}}))
	for _, none := range []string{`null`, `{"none":true}`, `{"map":[]}`} {
		k.hashed(`[["x",{"media":{"kind":"image","bytes":"ff","io_config":`+none+`}}]]`, x(&mmhash.EncodedImage{Data: []byte{0xff}}))
	}
	id := strings.Repeat("0a", 16)
	k.hashed(`[["x",{"media":{"kind":"image","bytes":"ff","exif_uuid":"`+id+`"}}]]`, x(mmhash.Bytes(strings.Repeat("\x0a", 16))))
	video := &mmhash.EncodedVideo{Data: []byte("\xff\xff"), Frames: &mmhash.Array{DType: "|u1", Shape: []int{1}, Data: []byte{7}}}
	for _, frames := range []string{`{"dtype":"|u1","shape":[1],"hex":"07"}`, `{"ndarray":{"dtype":"|u1","shape":[1],"hex":"07"}}`} {
		k.hashed(`[["x",{"media":{"kind":"video","bytes":"ffff","frames":`+frames+`}}]]`, x(video))
	}
	k.hashed(`[["x",{"media":{"kind":"video","bytes":"ff","frames":{"tensor":{"dtype":"uint8","shape":[1],"hex":"07"}}}}]]`,
		x(&mmhash.EncodedVideo{Data: []byte{0xff}, Frames: &mmhash.Tensor{DType: "uint8", Shape: []int{1}, Data: []byte{7}}}))
	k.hashed(`[["x",{"str":"\ufffd\ud83d\ude00`+"\uFFFD"+`"}]]`, x(mmhash.Str("\uFFFD\U0001F600\uFFFD")))
}

func TestHashRefuses(t *testing.T) {
	k := newTalker(t)
	deep := strings.Repeat(`{"list":[`, 70) + strings.Repeat(`]}`, 70)
	for _, v := range []string{
		`null`, `1`, `"x"`, `[]`, `{}`, `{"str":"a","int":"1"}`, `{"nope":1}`, `{"str":null}`, `{"str":1}`, `{"str":"\ud800"}`, `{"str":"\udc00x"}`,
		`{"bytes":"0"}`, `{"bytes":"zz"}`, `{"bytes":1}`, `{"int":1}`, `{"int":"x"}`, `{"int":"1.0"}`, `{"int":"18446744073709551616"}`,
		`{"int":"-9223372036854775809"}`, `{"float":"x"}`, `{"float":"0x1p+9999"}`, `{"float":1.5}`, `{"bool":1}`, `{"list":{}}`, `{"list":[1]}`,
		`{"map":[["a"]]}`, `{"map":[["a",{"none":true},1]]}`, `{"map":[[1,{"none":true}]]}`, `{"map":{}}`, deep,
		`{"ndarray":{"dtype":"<f4","hex":""}}`, `{"ndarray":{"dtype":"<f4","shape":[1],"hex":"00"}}`, `{"ndarray":{"dtype":"<f4","shape":[-1],"hex":""}}`,
		`{"ndarray":{"dtype":"<f4","shape":[9223372036854775807,9223372036854775807],"hex":""}}`, `{"ndarray":{"shape":[1.5]}}`,
		`{"image":{"mode":"L","size":[1],"hex":"00"}}`, `{"image":{"mode":"L","size":[2,1],"hex":"00"}}`, `{"image":{"mode":"1","size":[9,1],"hex":"00"}}`,
		`{"image":{"mode":"1","size":[9223372036854775807,9223372036854775807],"hex":"00"}}`, `{"image":{"mode":"1","size":[-8,-1],"hex":"00"}}`,
		`{"image":{"mode":"1","size":[8,9223372036854775807],"hex":"00"}}`,
		`{"image":{"mode":"1","size":[0,1],"hex":"00"}}`, `{"image":{"mode":"L","size":[1,1],"hex":"00","palette":"00"}}`,
		`{"media":{}}`, `{"media":{"kind":"image"}}`, `{"media":{"kind":"audio","bytes":""}}`, `{"media":{"kind":"video","bytes":""}}`,
		`{"media":{"kind":"video","bytes":"","frames":{"int":"1"}}}`, `{"media":{"kind":"image","bytes":"","exif_uuid":"00"}}`,
		`{"media":{"kind":"image","bytes":"","io_config":{"int":"1"}}}`, `{"media":{"kind":"image","bytes":"","io_config":7}}`,
	} {
		k.fails("invalid", `{"op":"hash","algorithm":"blake3","kwargs":[["x",`+v+`]]}`)
	}
	for _, kwargs := range []string{`null`, `{}`, `[1]`, `[["x"]]`, `[[null,{"none":true}]]`, `[["x",{"none":true}],["x",{"none":true}]]`} {
		k.fails("invalid", `{"op":"hash","algorithm":"blake3","kwargs":`+kwargs+`}`)
	}
	k.fails("invalid", `{"op":"hash","algorithm":"md5","kwargs":[]}`)
	k.fails("invalid", `{"op":"hash","algorithm":"blake3"}`)
	for _, bad := range []string{
		`"algorithm":"sha256","generation":"0.13.0","kwargs":[]`,
		`"generation":"9.9.9","kwargs":[]`,
		`"kwargs":[["x",{"tensor":{"dtype":"float8_e4m3fn","shape":[1],"hex":"00"}}]]`,
		`"kwargs":[["x",{"ndarray":{"dtype":"|O","shape":[1],"hex":"00"}}]]`,
		`"kwargs":[["x",{"image":{"mode":"RGB16","size":[0,0],"hex":""}}]]`,
		`"generation":"0.12.0","kwargs":[["x",{"media":{"kind":"image","bytes":"ff"}}]]`,
		`"generation":"0.15.1","kwargs":[["x",{"ndarray":{"dtype":"<f4","shape":[],"hex":"00000000"}}]]`,
	} {
		k.fails("unsupported", `{"op":"hash",`+bad+`}`)
	}
	require.True(t, json.Valid(k.a.Do([]byte(`{"op":"hash","kwargs":[["x",{"list":[{"list":[}]}]]}`))))
}
