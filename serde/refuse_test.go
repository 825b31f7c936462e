package serde

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/pycompat"
)

func TestDecodeValueRefuses(t *testing.T) {
	data := []byte{0x80}
	for name, c := range map[string]struct {
		m    Metadata
		text string
	}{
		"wrong length":         {Metadata{typeItem, 2, []int64{2}}, "data: got 1, want 2 bytes by the metadata"},
		"None for an item":     {Metadata{typeItem, 1, nil}, "metadata: got 1 bytes left over, want frames that cover the data"},
		"empty list":           {Metadata{typeItem, 1, []int64{}}, "metadata: got 1 bytes left over, want frames that cover the data"},
		"lengths too long":     {Metadata{typeItem, 1, []int64{2}}, "metadata: got 2, want a frame of at most the 1 bytes left"},
		"negative length":      {Metadata{typeItem, 1, []int64{2, -1}}, "metadata: got 1, want at most the 0 frames that a document of 2 bytes can refer to"},
		"lengths too short":    {Metadata{typeItem, 1, []int64{0}}, "metadata: got 1 bytes left over, want frames that cover the data"},
		"lengths for a pickle": {Metadata{typePickle, 1, []int64{1}}, "metadata: got 1 lengths, 1 bytes, want None for the lengths of a pickle of at least a byte"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeValue(c.m, data, Options{})
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, c.text)
		})
	}
	_, err := DecodeValue(Metadata{typePickle, 0, nil}, nil, Options{})
	corrupt(t, err, "metadata: got 0 lengths, 0 bytes, want None for the lengths of a pickle of at least a byte")
	v, err := DecodeValue(Metadata{typeItem, 1, []int64{1}}, data, Options{})
	require.NoError(t, err)
	require.Empty(t, v.(*Item).Elems)
}

func TestDecodeRefuses(t *testing.T) {
	elem := func(data string) []byte {
		return append(append([]byte("\x81\xa1x\x82\xa4data"), data...), "\xa5field\x92\xa7batched\x80"...)
	}
	field := func(f string) []byte {
		return append([]byte("\x81\xa1x\x82\xa4data\xc0\xa5field"), f...)
	}
	frames := func(main []byte) [][]byte { return [][]byte{main, make([]byte, 4)} }
	u8 := func(data string) []byte { return elem("\x93\xa5uint8\x91\x04" + data) }

	ok := map[string][][]byte{
		"aux":              frames(u8("\x01")),
		"inline":           {u8("\xd6\x031234")},
		"alias":            {elem("\x93\xa4half\x91\x02\xd6\x031234")},
		"empty aux":        {elem("\x93\xa5uint8\x91\x00\x01"), {}},
		"wide integers":    {elem("\x93\xa5uint8\x91\xd3\x00\x00\x00\x00\x00\x00\x00\x04\xc7\x04\x031234")},
		"float32":          {elem("\xca\x3f\x80\x00\x00")},
		"defaults":         {field("\x92\xa4flat\x81\xa6slices\x90")},
		"order of keys":    {[]byte("\x81\xa1x\x82\xa5field\x92\xa7batched\x81\xabkeep_on_cpu\xc3\xa4data\xc0")},
		"list, empty list": {field("\x92\xa4flat\x81\xa6slices\x91\x90")},
	}
	for name, f := range ok {
		_, err := DecodeItem(f, Options{})
		require.NoError(t, err, name)
	}
	it, err := DecodeItem(ok["alias"], Options{})
	require.NoError(t, err)
	require.EqualValues(t, "float16", it.Elems[0].Data.(*Tensor).DType)

	for name, c := range map[string]struct {
		f    [][]byte
		kind error
		text string
	}{
		"no frames":             {nil, ErrCorrupt, "frames: got none, want a main document"},
		"empty main":            {[][]byte{{}}, ErrCorrupt, "main document at byte 0: got the document ends inside a value, want one MessagePack value"},
		"trailing byte":         {[][]byte{{0x80, 0xc0}}, ErrCorrupt, "main document at byte 1: got 1 bytes follow the document, want one MessagePack value"},
		"nil":                   {[][]byte{{0xc0}}, ErrCorrupt, "item at byte 0: got nil, want a map"},
		"index 0":               {frames(u8("\x00")), ErrCorrupt, `tensor of elem "x" at byte 19: got 0, want the index of one of 1 frames`},
		"index 2 of 1":          {frames(u8("\x02")), ErrCorrupt, `tensor of elem "x" at byte 19: got 2, want the index of one of 1 frames`},
		"index -1":              {frames(u8("\xff")), ErrCorrupt, `tensor of elem "x" at byte 19: got -1, want the index of one of 1 frames`},
		"index 2^64-1":          {frames(u8("\xcf\xff\xff\xff\xff\xff\xff\xff\xff")), ErrCorrupt, `tensor of elem "x" at byte 27: got 18446744073709551615, want a signed 64-bit integer`},
		"frame unused":          {frames(elem("\xc0")), ErrCorrupt, "frames: got none for frame 1, want a tensor for each"},
		"frame twice":           {frames(elem("\x92\x93\xa5uint8\x91\x04\x01\x93\xa5uint8\x91\x04\x01")), ErrCorrupt, `tensor of elem "x" at byte 30: got frame 1 again, want a frame of its own`},
		"frame length":          {frames(elem("\x93\xa5int16\x91\x04\x01")), ErrCorrupt, `tensor of elem "x" at byte 19: got 4, want 8 bytes by dtype and shape`},
		"inline length":         {[][]byte{u8("\xd5\x0312")}, ErrCorrupt, `tensor of elem "x" at byte 22: got 2, want 4 bytes by dtype and shape`},
		"empty, not by shape":   {[][]byte{u8("\xc7\x00\x03")}, ErrCorrupt, `tensor of elem "x" at byte 21: got 0, want 4 bytes by dtype and shape`},
		"pickle":                {[][]byte{u8("\xd6\x011234")}, ErrUnsupported, "tensor holds a pickle (extension 1), which is never executed; run the peer without VLLM_ALLOW_INSECURE_SERIALIZATION"},
		"unknown extension":     {[][]byte{u8("\xd6\x7f1234")}, ErrUnsupported, "tensor holds data of the unknown extension 127; check that the peer is a known vLLM"},
		"out of band":           {[][]byte{u8("\x81\xa9sender_id\xc0")}, ErrUnsupported, "tensor was sent out of band, which only Python peers can do; run the engine with mm_tensor_ipc=direct_rpc"},
		"data is bytes":         {[][]byte{u8("\xc4\x041234")}, ErrCorrupt, `tensor of elem "x" at byte 18: got bytes, want raw bytes or the index of a frame`},
		"unknown dtype":         {[][]byte{elem("\x93\xa5tensr\x91\x04\xd6\x031234")}, ErrUnsupported, `tensor has the dtype "tensr", which this library does not know; ask for a dtype of torch 2.14 or update the library`},
		"negative dim":          {[][]byte{elem("\x93\xa5uint8\x91\xff\xd6\x031234")}, ErrCorrupt, `shape of elem "x" at byte 18: got -1, want at least 0`},
		"float dim":             {[][]byte{elem("\x93\xa5uint8\x91\xca\x40\x80\x00\x00\xd6\x031234")}, ErrCorrupt, `shape of elem "x" at byte 17: got a float, want an integer`},
		"shape overflow":        {[][]byte{elem("\x93\xa5int64\x92\xcf\x40\x00\x00\x00\x00\x00\x00\x00\x08\xc7\x00\x03")}, ErrCorrupt, `shape of elem "x" at byte 27: got [4611686018427387904 8], want a tensor that fits in memory`},
		"65 dims":               {[][]byte{elem("\x93\xa5uint8\xdc\x00\x41" + string(bytes.Repeat([]byte{1}, 65)) + "\xd4\x031")}, ErrCorrupt, `shape of elem "x" at byte 19: got 65, want at most 64 dimensions`},
		"pair":                  {[][]byte{elem("\x92\xa5uint8\x91\x04")}, ErrCorrupt, `tensor of elem "x" at byte 10: got an array of 2, want [dtype, shape, data]`},
		"string":                {[][]byte{elem("\xa1x")}, ErrCorrupt, `data of elem "x" at byte 9: got a string, want a tensor, a number, a list or nil`},
		"nil in list":           {[][]byte{elem("\x91\xc0")}, ErrCorrupt, `data of elem "x" at byte 10: got nil, want no nil inside a list`},
		"extension as data":     {[][]byte{elem("\xd6\x031234")}, ErrCorrupt, `data of elem "x" at byte 9: got an extension, want a tensor, a number, a list or nil`},
		"too deep":              {[][]byte{elem(string(bytes.Repeat([]byte{0x91}, codec.MaxDepth+1)) + "\x01")}, ErrCorrupt, `data of elem "x" at byte 74: got more, want at most 64 levels of lists`},
		"duplicate key":         {[][]byte{append([]byte{0x82}, append(elem("\x01")[1:], elem("\x01")[1:]...)...)}, ErrCorrupt, `item at byte 51: got "x" twice, want each key once`},
		"duplicate data":        {[][]byte{[]byte("\x81\xa1x\x83\xa4data\xc0\xa4data\xc0\xa5field\x92\xa7batched\x80")}, ErrCorrupt, `elem of elem "x" at byte 15: got "data" twice, want each key once`},
		"extra key":             {[][]byte{[]byte("\x81\xa1x\x83\xa4data\xc0\xa4more\xc0\xa5field\x92\xa7batched\x80")}, ErrCorrupt, `elem of elem "x" at byte 15: got "more", want only the keys of this generation`},
		"key of another form":   {[][]byte{[]byte("\x81\xa1x\x83\xa4data\xc0\xa3key\xa1x\xa5field\x92\xa7batched\x80")}, ErrCorrupt, `elem of elem "x" at byte 14: got "key", want only the keys of this generation`},
		"missing data":          {[][]byte{[]byte("\x81\xa1x\x81\xa5field\x92\xa7batched\x80")}, ErrCorrupt, `elem of elem "x" at byte 20: got 1 of them, want all keys of this generation`},
		"integer key":           {[][]byte{[]byte("\x81\x01\x82\xa4data\xc0\xa5field\x92\xa7batched\x80")}, ErrCorrupt, "key at byte 1: got an integer, want a string"},
		"key not UTF-8":         {[][]byte{[]byte("\x81\xa1\xff\x82\xa4data\xc0\xa5field\x92\xa7batched\x80")}, ErrCorrupt, "key at byte 3: got \"\\xff\", want UTF-8"},
		"extension before map":  {[][]byte{[]byte("\x81\xa1x\xc7\x00\x03\x82\xa4data\xc0\xa5field\x92\xa7batched\x80")}, ErrCorrupt, "main document at byte 6: got 23 bytes follow the document, want one MessagePack value"},
		"unknown field":         {[][]byte{field("\x92\xa6nested\x80")}, ErrUnsupported, `there is no field "nested" in the vLLM releases this library knows; update the library`},
		"field name only":       {[][]byte{field("\x91\xa7batched")}, ErrCorrupt, `field of elem "x" at byte 25: got an array of 1, want [name, arguments]`},
		"field argument":        {[][]byte{field("\x92\xa7batched\x81\xa3dim\x00")}, ErrCorrupt, `field of elem "x" at byte 30: got "dim", want only arguments of a batched one`},
		"field argument twice":  {[][]byte{field("\x92\xa7batched\x82\xabkeep_on_cpu\xc2\xabkeep_on_cpu\xc2")}, ErrCorrupt, `field of elem "x" at byte 51: got "keep_on_cpu" twice, want each key once`},
		"flat without slices":   {[][]byte{field("\x92\xa4flat\x81\xa3dim\x00")}, ErrCorrupt, `field of elem "x" at byte 28: got none, want slices or batch_size`},
		"shared without size":   {[][]byte{field("\x92\xa6shared\x80")}, ErrCorrupt, `field of elem "x" at byte 25: got none, want slices or batch_size`},
		"negative batch":        {[][]byte{field("\x92\xa6shared\x81\xaabatch_size\xff")}, ErrCorrupt, `batch_size of elem "x" at byte 37: got -1, want at least 0`},
		"keep_on_cpu 1":         {[][]byte{field("\x92\xa7batched\x81\xabkeep_on_cpu\x01")}, ErrCorrupt, `keep_on_cpu of elem "x" at byte 38: got an integer, want a bool`},
		"slice of 2":            {[][]byte{field("\x92\xa4flat\x81\xa6slices\x91\x92\x00\x01")}, ErrCorrupt, `slice of elem "x" at byte 32: got an array of 2, want [start, stop, step]`},
		"one slice, not a list": {[][]byte{field("\x92\xa4flat\x81\xa6slices\x93\x00\x01\xc0")}, ErrCorrupt, `slices of elem "x" at byte 31: got an integer, want an array`},
		"mixed slices":          {[][]byte{field("\x92\xa4flat\x81\xa6slices\x92\x93\x00\x01\xc0\x91\x93\x00\x01\xc0")}, ErrCorrupt, `slices of elem "x" at byte 36: got a mixture, want slices or lists of slices`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeItem(c.f, Options{})
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.text)
		})
	}
}

// The forms with a modality in each elem have one modality for the item.
func TestDecodeRefusesMixedModalities(t *testing.T) {
	elem := func(key, modality string) string {
		return "\x84\xa8modality\xa5" + modality + "\xa3key\xa1" + key + "\xa4data\xc0\xa5field\x91\xa7batched"
	}
	o := formOptions(t, pycompat.ItemPositional)
	it, err := DecodeItem([][]byte{[]byte("\x92" + elem("a", "image") + elem("b", "image"))}, o)
	require.NoError(t, err)
	require.Equal(t, "image", it.Modality)
	for doc, text := range map[string]string{
		"\x92" + elem("a", "image") + elem("b", "audio"): `got "audio", want the modality "image" in every elem`,
		"\x92" + elem("a", "image") + elem("a", "image"): `got "a" twice, want each key once`,
		"\x90": "item at byte 1: got none, want at least one elem",
	} {
		_, err = DecodeItem([][]byte{[]byte(doc)}, o)
		corrupt(t, err, text)
	}
}
