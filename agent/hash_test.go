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

	x := func(v any) mmhash.Entry { return mmhash.Entry{Key: "x", Value: v} }
	k.hashed(`[["x",{"bytes":"00ff"}],["y",{"none":true}]]`, x([]byte("\x00\xff")), mmhash.Entry{Key: "y", Value: nil})
	k.hashed(`[["x",{"list":[{"int":"-1"},{"int":"18446744073709551615"},{"bool":true},{"bool":false},{"list":[]}]}]]`,
		x([]any{int64(-1), uint64(1<<64 - 1), true, false, []any{}}))
	k.hashed(`[["x",{"map":[["b",{"float":"0x1.8p+0"}],["a",{"float":"-inf"}],["n",{"float":"nan"}],["e",{"map":[]}]]}]]`,
		x([]mmhash.Entry{{Key: "b", Value: 1.5}, {Key: "a", Value: []byte("\x00\x00\x00\x00\x00\x00\xf0\xff")},
			{Key: "n", Value: []byte("\x00\x00\x00\x00\x00\x00\xf8\x7f")}, {Key: "e", Value: []mmhash.Entry{}}}))
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
	p.Palette = &mmhash.Palette{Type: "bytearray"}
	k.hashed(`[["x",{"image":{"mode":"P","size":[2,1],"hex":"0001"}}]]`, x(p))

	k.hashed(`[["x",{"media":{"kind":"image","bytes":"ff","io_config":{"map":[["image_mode",{"str":"RGB"}]]}}}]]`,
		x(&mmhash.EncodedImage{Data: []byte{0xff}, IOConfig: []mmhash.Entry{{Key: "image_mode", Value: "RGB"}}}))
	for _, none := range []string{`null`, `{"none":true}`, `{"map":[]}`} {
		k.hashed(`[["x",{"media":{"kind":"image","bytes":"ff","io_config":`+none+`}}]]`, x(&mmhash.EncodedImage{Data: []byte{0xff}}))
	}
	id := strings.Repeat("0a", 16)
	k.hashed(`[["x",{"media":{"kind":"image","bytes":"ff","exif_uuid":"`+id+`"}}]]`, x([]byte(strings.Repeat("\x0a", 16))))
	video := &mmhash.EncodedVideo{Data: []byte("\xff\xff"), Frames: &mmhash.Array{DType: "|u1", Shape: []int{1}, Data: []byte{7}}}
	for _, frames := range []string{`{"dtype":"|u1","shape":[1],"hex":"07"}`, `{"ndarray":{"dtype":"|u1","shape":[1],"hex":"07"}}`} {
		k.hashed(`[["x",{"media":{"kind":"video","bytes":"ffff","frames":`+frames+`}}]]`, x(video))
	}
	k.hashed(`[["x",{"media":{"kind":"video","bytes":"ff","frames":{"tensor":{"dtype":"uint8","shape":[1],"hex":"07"}}}}]]`,
		x(&mmhash.EncodedVideo{Data: []byte{0xff}, Frames: &mmhash.Tensor{DType: "uint8", Shape: []int{1}, Data: []byte{7}}}))
	k.hashed(`[["x",{"str":"\ufffd\ud83d\ude00`+"\uFFFD"+`"}]]`, x("\uFFFD\U0001F600\uFFFD"))
}

func TestHashRefuses(t *testing.T) {
	k := newTalker(t)
	deep := strings.Repeat(`{"list":[`, 70) + strings.Repeat(`]}`, 70)
	for _, c := range []struct{ v, text string }{
		{`null`, "value null"},
		{`1`, "value 1: json: cannot unmarshal number"},
		{`"x"`, `value "x": json: cannot unmarshal string`},
		{`[]`, "value []: json: cannot unmarshal array"},
		{`{}`, "value {}"},
		{`{"str":"a","int":"1"}`, `value {"str":"a","int":"1"}`},
		{`{"nope":1}`, `value {"nope":1}: unknown field "nope"`},
		{`{"str":null}`, "null: want a string"},
		{`{"str":1}`, "1: want a string"},
		{`{"str":"\ud800"}`, "the text is not UTF-8, or an escape is one half of a surrogate pair"},
		{`{"str":"\udc00x"}`, "the text is not UTF-8, or an escape is one half of a surrogate pair"},
		{`{"bytes":"0"}`, `value {"bytes":"0"}: encoding/hex: odd length hex string`},
		{`{"bytes":"zz"}`, `value {"bytes":"zz"}: encoding/hex: invalid byte: U+007A 'z'`},
		{`{"bytes":1}`, `value {"bytes":1}`},
		{`{"int":1}`, `value {"int":1}: json: cannot unmarshal number`},
		{`{"int":"x"}`, `"x" is no decimal integer`},
		{`{"int":"1.0"}`, `"1.0" is no decimal integer`},
		{`{"int":"18446744073709551616"}`, "the integer 18446744073709551616 does not fit 64 bits"},
		{`{"int":"-9223372036854775809"}`, "the integer -9223372036854775809 does not fit 64 bits"},
		{`{"float":"x"}`, `float "x"`},
		{`{"float":"0x1p+9999"}`, `float "0x1p+9999"`},
		{`{"float":1.5}`, `value {"float":1.5}: json: cannot unmarshal number`},
		{`{"bool":1}`, `value {"bool":1}: json: cannot unmarshal number`},
		{`{"list":{}}`, `value {"list":{}}: json: cannot unmarshal object`},
		{`{"list":[1]}`, "value 1: json: cannot unmarshal number"},
		{`{"map":[["a"]]}`, `map: ["a"]`},
		{`{"map":[["a",{"none":true},1]]}`, `map: ["a",{"none":true},1]`},
		{`{"map":[[1,{"none":true}]]}`, "1: want a string"},
		{`{"map":{}}`, `value {"map":{}}: json: cannot unmarshal object`},
		{deep, "value: nested more than 64 deep"},
		{`{"ndarray":{"dtype":"<f4","hex":""}}`, `array of "<f4": field "shape" is missing`},
		{`{"ndarray":{"dtype":"<f4","shape":[1],"hex":"00"}}`, `argument "x": an array of shape [1] takes 4 bytes, there are 1`},
		{`{"ndarray":{"dtype":"<f4","shape":[-1],"hex":""}}`, `argument "x": the shape of an array has a negative dimension, more than 64 dimensions or too many elements`},
		{`{"ndarray":{"dtype":"<f4","shape":[9223372036854775807,9223372036854775807],"hex":""}}`, `argument "x": the shape of an array has a negative dimension, more than 64 dimensions or too many elements`},
		{`{"ndarray":{"shape":[1.5]}}`, `value {"ndarray":{"shape":[1.5]}}: json: cannot unmarshal number 1.5`},
		{`{"image":{"mode":"L","size":[1],"hex":"00"}}`, "image: size is [width, height]"},
		{`{"image":{"mode":"L","size":[2,1],"hex":"00"}}`, `argument "x": an image of shape [1 2] takes 2 bytes, there are 1`},
		{`{"image":{"mode":"1","size":[9,1],"hex":"00"}}`, "image: 1 bytes, which are not 1 rows of 9 pixels, 8 in a byte"},
		{`{"image":{"mode":"1","size":[9223372036854775807,9223372036854775807],"hex":"00"}}`, "image: negative size, or a very large one"},
		{`{"image":{"mode":"1","size":[-8,-1],"hex":"00"}}`, "image: negative size, or a very large one"},
		{`{"image":{"mode":"1","size":[8,9223372036854775807],"hex":"00"}}`, "image: 1 bytes, which are not 9223372036854775807 rows of 8 pixels, 8 in a byte"},
		{`{"image":{"mode":"1","size":[0,1],"hex":"00"}}`, "image: 1 bytes, which are not 1 rows of 0 pixels, 8 in a byte"},
		{`{"image":{"mode":"L","size":[1,1],"hex":"00","palette":"00"}}`, `image: one of mode "L" has no palette`},
		{`{"media":{}}`, `media: field "bytes" is missing`},
		{`{"media":{"kind":"image"}}`, `media: field "bytes" is missing`},
		{`{"media":{"kind":"audio","bytes":""}}`, `media: unknown kind "audio"`},
		{`{"media":{"kind":"video","bytes":""}}`, `media: field "frames" is missing`},
		{`{"media":{"kind":"video","bytes":"","frames":{"int":"1"}}}`, `argument "x": the frames of a video are an *Array or a *Tensor, not int64`},
		{`{"media":{"kind":"image","bytes":"","exif_uuid":"00"}}`, "media: an exif_uuid of 1 bytes"},
		{`{"media":{"kind":"image","bytes":"","io_config":{"int":"1"}}}`, "media: io_config is a map"},
		{`{"media":{"kind":"image","bytes":"","io_config":7}}`, "value 7: json: cannot unmarshal number"},
	} {
		t.Run(c.text, func(t *testing.T) {
			k.in(t).refuses("invalid", `{"op":"hash","algorithm":"blake3","kwargs":[["x",`+c.v+`]]}`, c.text)
		})
	}
	for _, c := range []struct{ kwargs, text string }{
		{`null`, `field "kwargs" is missing`},
		{`{}`, `field "kwargs": json: cannot unmarshal object`},
		{`[1]`, "kwargs: 1"},
		{`[["x"]]`, `kwargs: ["x"]`},
		{`[[null,{"none":true}]]`, "null: want a string"},
		{`[["x",{"none":true}],["x",{"none":true}]]`, `argument "x": it is given twice`},
	} {
		t.Run(c.text, func(t *testing.T) {
			k.in(t).refuses("invalid", `{"op":"hash","algorithm":"blake3","kwargs":`+c.kwargs+`}`, c.text)
		})
	}
	k.refuses("invalid", `{"op":"hash","algorithm":"md5","kwargs":[]}`, `unknown hash algorithm "md5"`)
	k.refuses("invalid", `{"op":"hash","algorithm":"blake3"}`, `field "kwargs" is missing`)
	for _, c := range []struct{ bad, text string }{
		{`"algorithm":"sha256","generation":"0.13.0","kwargs":[]`, "vLLM 0.13.0 hashes with blake3 only, not sha256"},
		{`"generation":"9.9.9","kwargs":[]`, `"9.9.9"`},
		{`"kwargs":[["x",{"tensor":{"dtype":"float8_e4m3fn","shape":[1],"hex":"00"}}]]`, `argument "x": numpy has no type for a tensor of "float8_e4m3fn"`},
		{`"kwargs":[["x",{"ndarray":{"dtype":"|O","shape":[1],"hex":"00"}}]]`, `argument "x": "|O" is no numpy type string`},
		{`"kwargs":[["x",{"image":{"mode":"RGB16","size":[0,0],"hex":""}}]]`, `argument "x": "RGB16" is no mode that a PIL image has`},
		{`"generation":"0.12.0","kwargs":[["x",{"media":{"kind":"image","bytes":"ff"}}]]`, `argument "x": this release of vLLM hashes the pixels of an image here, not its file: give EncodedImage.Pixels`},
		{`"generation":"0.15.1","kwargs":[["x",{"ndarray":{"dtype":"<f4","shape":[],"hex":"00000000"}}]]`, `argument "x": vLLM before 0.16.0 fails on arrays and tensors without dimensions`},
	} {
		t.Run(c.text, func(t *testing.T) { k.in(t).refuses("unsupported", `{"op":"hash",`+c.bad+`}`, c.text) })
	}
	require.True(t, json.Valid(k.a.Do([]byte(`{"op":"hash","kwargs":[["x",{"list":[{"list":[}]}]]}`))))
}
