package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// file builds a file of a header's text and bytes behind it.
func file(text string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(b, text...), make([]byte, data)...)
}

const four = `{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`

func nest(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// TestWhatTheLibraryTakes has the answers of the library, version 0.8.0; the interop tests ask it again.
func TestWhatTheLibraryTakes(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		data int
		ok   bool
	}{
		"no tensors":                            {`{}`, 0, true},
		"bytes without tensors":                 {`{}`, 1, false},
		"empty text":                            {``, 0, false},
		"array":                                 {`[]`, 0, false},
		"null":                                  {`null`, 0, false},
		"one tensor":                            {`{"a":` + four + `}`, 4, true},
		"trailing byte":                         {`{"a":` + four + `}`, 5, false},
		"byte missing":                          {`{"a":` + four + `}`, 3, false},
		"a tensor as an array":                  {`{"a":["U8",[4],[0,4]]}`, 4, true},
		"an array that is too long":             {`{"a":["U8",[4],[0,4],1]}`, 4, false},
		"an array that is too short":            {`{"a":["U8",[4]]}`, 4, false},
		"dtype as an object":                    {`{"a":{"dtype":{"U8":null},"shape":[4],"data_offsets":[0,4]}}`, 4, true},
		"dtype as an object of an object":       {`{"a":{"dtype":{"U8":{}},"shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"two dtypes":                            {`{"a":{"dtype":{"U8":null,"U8":null},"shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"no dtypes":                             {`{"a":{"dtype":{},"shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"dtype as a number":                     {`{"a":{"dtype":4,"shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"unknown dtype":                         {`{"a":{"dtype":"u8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"two tensors of one name":               {`{"a":` + four + `,"a":` + four + `}`, 4, true},
		"the first of two does not fit":         {`{"a":{"dtype":"U8","shape":[5],"data_offsets":[0,4]},"a":` + four + `}`, 4, true},
		"the first of two is no tensor":         {`{"a":5,"a":` + four + `}`, 4, false},
		"the first of two has no dtype":         {`{"a":{"shape":[4],"data_offsets":[0,4]},"a":` + four + `}`, 4, false},
		"one offset of nothing":                 {`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}}`, 0, false},
		"a dimension beyond an int":             {`{"a":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}}`, 0, false}, // the only one that the library takes
		"the last control character":            {"{\"a\x1f\":" + four + `}`, 4, false},
		"two equal fields":                      {`{"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"other fields":                          {`{"a":{"x":[1,{"y":null},-0,true,false,"\u00e9"],"x":1.5e-3,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, true},
		"a number that is too large":            {`{"a":{"x":1e400,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"a number that is too small":            {`{"a":{"x":1e-400,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, true},
		"metadata":                              {`{"__metadata__":{"a":"1","b":""},"a":` + four + `}`, 4, true},
		"metadata behind":                       {`{"a":` + four + `,"__metadata__":{"x":"1"}}`, 4, true},
		"metadata null":                         {`{"__metadata__":null,"a":` + four + `}`, 4, true},
		"metadata twice":                        {`{"__metadata__":{},"__metadata__":{},"a":` + four + `}`, 4, false},
		"metadata null twice":                   {`{"__metadata__":null,"__metadata__":null,"a":` + four + `}`, 4, false},
		"metadata of a key twice":               {`{"__metadata__":{"a":"1","a":"2"},"a":` + four + `}`, 4, true},
		"metadata that is an array":             {`{"__metadata__":[],"a":` + four + `}`, 4, false},
		"metadata that are numbers":             {`{"__metadata__":{"n":1},"a":` + four + `}`, 4, false},
		"metadata with an escaped name":         {`{"__metadata\u005f_":{"x":1},"a":` + four + `}`, 4, false},
		"offset -0":                             {`{"a":{"dtype":"U8","shape":[4],"data_offsets":[-0,4]}}`, 4, false},
		"offset 0.0":                            {`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0.0,4]}}`, 4, false},
		"offset 4e0":                            {`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4e0]}}`, 4, false},
		"offset 04":                             {`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,04]}}`, 4, false},
		"offset -4":                             {`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,-4]}}`, 4, false},
		"offset 2^64":                           {`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551616]}}`, 4, false},
		"three offsets":                         {`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}}`, 4, false},
		"one offset":                            {`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0]}}`, 4, false},
		"offsets as an object":                  {`{"a":{"dtype":"U8","shape":[4],"data_offsets":{"0":0,"1":4}}}`, 4, false},
		"offsets the wrong way round":           {`{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}}`, 4, false},
		"shape null":                            {`{"a":{"dtype":"U8","shape":null,"data_offsets":[0,4]}}`, 4, false},
		"shape missing":                         {`{"a":{"dtype":"U8","data_offsets":[0,4]}}`, 4, false},
		"a tensor null":                         {`{"a":null}`, 0, false},
		"scalar":                                {`{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 1, true},
		"a product that overflows":              {`{"a":{"dtype":"U8","shape":[9223372036854775807,5,0],"data_offsets":[0,0]}}`, 0, false},
		"a product that zero keeps small":       {`{"a":{"dtype":"U8","shape":[0,9223372036854775807,5],"data_offsets":[0,0]}}`, 0, true},
		"bits that overflow to none":            {`{"a":{"dtype":"U8","shape":[2305843009213693952],"data_offsets":[0,0]}}`, 0, false},
		"bits that overflow":                    {`{"a":{"dtype":"U8","shape":[2305843009213693952],"data_offsets":[0,2305843009213693952]}}`, 0, false},
		"half a byte":                           {`{"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}}`, 1, false},
		"two halves":                            {`{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}`, 1, true},
		"four times six bits":                   {`{"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}`, 3, true},
		"many dimensions":                       {`{"a":{"dtype":"U8","shape":[` + strings.Repeat("1,", 999) + `1],"data_offsets":[0,1]}}`, 1, true},
		"white space":                           {" \n\t\r{ \"a\" : " + four + " } \n\r\t", 4, true},
		"zero behind":                           {`{"a":` + four + "}\x00", 4, false},
		"zero in front":                         {"\x00" + `{"a":` + four + `}`, 4, false},
		"a byte order mark":                     {"\ufeff" + `{"a":` + four + `}`, 4, false},
		"half a surrogate pair":                 {`{"\ud800":` + four + `}`, 4, false},
		"the other half":                        {`{"\udc00":` + four + `}`, 4, false},
		"a surrogate pair":                      {`{"\ud83d\ude00":` + four + `}`, 4, true},
		"a half and a letter":                   {`{"\ud83d\u0041":` + four + `}`, 4, false},
		"an array of nothing is too short":      {`{"a":["U8",[0]]}`, 0, false},
		"a comma too many in what is skipped":   {`{"a":{"x":[1,],"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"a comma too many in a tensor":          {`{"a":["U8",[4],[0,4],]}`, 4, false},
		"a comma too many in metadata":          {`{"__metadata__":{"a":"b",},"a":` + four + `}`, 4, false},
		"signs of exponents":                    {`{"a":{"x":[1e+5,1E-5,1.5e+05],"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, true},
		"two signs of an exponent":              {`{"a":{"x":1e+-5,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"a gap that the end makes up for":       {`{"a":` + four + `,"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}}`, 8, false},
		"many digits, small by the exponent":    {`{"a":{"x":` + strings.Repeat("9", 310) + `e-99999999999,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, true},
		"a zero in front of what is skipped":    {`{"a":{"x":[01],"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"zeros in front of what is skipped":     {`{"a":{"x":[00],"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"an empty tensor behind its neighbour":  {`{"a":` + four + `,"c":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 4, true},
		"two first halves":                      {`{"\ud83d\ud83d\ude00":` + four + `}`, 4, false},
		"a half and another escape":             {`{"\ud83d\n":` + four + `}`, 4, false},
		"an unknown escape":                     {`{"\x41":` + four + `}`, 4, false},
		"a sign in an escape":                   {`{"\u+041":` + four + `}`, 4, false},
		"a control character":                   {"{\"a\n\":" + four + `}`, 4, false},
		"delete":                                {"{\"a\x7f\":" + four + `}`, 4, true},
		"no UTF-8":                              {"{\"a\xff\":" + four + `}`, 4, false},
		"an empty name":                         {`{"":` + four + `}`, 4, true},
		"overlap":                               {`{"a":` + four + `,"b":` + four + `}`, 4, false},
		"gap":                                   {`{"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}}`, 5, false},
		"any order":                             {`{"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},"a":` + four + `}`, 8, true},
		"empty tensors":                         {`{"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},"c":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":` + four + `}`, 4, true},
		"an empty tensor inside another":        {`{"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},"a":` + four + `}`, 4, false},
		"a comma too many":                      {`{"a":` + four + `,}`, 4, false},
		"a comma in front":                      {`{,"a":` + four + `}`, 4, false},
		"a comma too many in an array":          {`{"a":{"dtype":"U8","shape":[4,],"data_offsets":[0,4]}}`, 4, false},
		"no comma":                              {`{"a":{"dtype":"U8" "shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"no colon":                              {`{"a" ` + four + `}`, 4, false},
		"cut":                                   {`{"a":` + four, 4, false},
		"nested as deep as the library goes":    {`{"a":{"x":` + nest(125) + `,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, true},
		"nested deeper":                         {`{"a":{"x":` + nest(126) + `,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"nested a million times":                {`{"a":{"x":` + nest(1e6) + `,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"an integer of many digits":             {`{"a":{"x":` + strings.Repeat("9", 308) + `,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, true},
		"an integer of too many digits":         {`{"a":{"x":` + strings.Repeat("9", 310) + `,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"zero with a huge exponent":             {`{"a":{"x":0e99999999999,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, true},
		"a huge exponent":                       {`{"a":{"x":1e99999999999,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"a huge negative exponent":              {`{"a":{"x":1e-99999999999,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, true},
		"a point without digits":                {`{"a":{"x":1.,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"an exponent without digits":            {`{"a":{"x":1e+,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"a minus without digits":                {`{"a":{"x":-,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"a plus":                                {`{"a":{"x":+1,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"a word that begins as another":         {`{"a":{"x":nul,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, false},
		"a large number, small by its fraction": {`{"a":{"x":0.` + strings.Repeat("0", 400) + `1e700,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := file(c.text, c.data)
			h, err := Parse(b)
			again, err2 := ReadHeader(strings.NewReader(string(b)), int64(len(b)), 0)
			if !c.ok {
				require.ErrorIs(t, err, ErrFormat)
				require.ErrorIs(t, err2, ErrFormat)
				return
			}
			require.NoError(t, err)
			require.NoError(t, err2)
			require.Equal(t, h, again)
			checkHeader(t, h, b)
		})
	}
}

// checkHeader checks what holds for every header.
func checkHeader(t require.TestingT, h *Header, b []byte) {
	require.Equal(t, int64(8)+int64(binary.LittleEndian.Uint64(b)), h.Length)
	end := h.Length
	names := make(map[string]bool)
	for _, x := range h.Tensors {
		require.False(t, names[x.Name], "names are unique")
		names[x.Name] = true
		require.Equal(t, end, x.Offset)
		require.Len(t, x.Bytes(b), int(x.Size))
		require.Equal(t, len(x.Bytes(b)), cap(x.Bytes(b)), "appending can't reach the next tensor")
		end += x.Size
	}
	require.Equal(t, int64(len(b)), end)
}

func TestParseOfDetails(t *testing.T) {
	h, err := Parse(file(`{"__metadata__":{"k":"1","k":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é"},"b":{"dtype":"F32","shape":[],"data_offsets":[4,8]},"a":`+four+`}`, 8))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"k": "\"\\/\b\f\n\r\té😀é"}, h.Metadata, "the last one counts")
	require.Equal(t, []Tensor{
		{Name: "a", DType: "U8", Shape: []int{4}, Offset: h.Length, Size: 4},
		{Name: "b", DType: "F32", Shape: []int{}, Offset: h.Length + 4, Size: 4},
	}, h.Tensors)
	h, err = Parse(file(`{"a":`+four+`,"a":{"dtype":"I8","shape":[2,2],"data_offsets":[0,4]}}`, 4))
	require.NoError(t, err)
	require.Equal(t, DType("I8"), h.Tensors[0].DType, "the last one counts")
	for _, text := range []string{`{}`, `{"__metadata__":null}`} {
		h, err = Parse(file(text, 0))
		require.NoError(t, err)
		require.Nil(t, h.Metadata)
	}
	h, err = Parse(file(`{"__metadata__":{}}`, 0))
	require.NoError(t, err)
	require.NotNil(t, h.Metadata)
}

func TestLengthOfHeader(t *testing.T) {
	whole := file(`{"a":`+four+`}`, 4)
	for n := range whole {
		_, err := Parse(whole[:n])
		require.ErrorIs(t, err, ErrFormat, "cut to %d", n)
		_, err = ReadHeader(strings.NewReader(string(whole[:n])), int64(n), 0)
		require.ErrorIs(t, err, ErrFormat, "cut to %d", n)
		_, err = ReadHeader(strings.NewReader(string(whole[:n])), int64(len(whole)), 0)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut to %d behind our back", n)
	}
	for _, n := range []uint64{uint64(len(whole)) - 7, 1e8 + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64 - 7, math.MaxUint64} {
		b := slices.Clone(whole)
		binary.LittleEndian.PutUint64(b, n)
		_, err := Parse(b)
		require.ErrorIs(t, err, ErrFormat, "%d", n)
		_, err = ReadHeader(strings.NewReader(string(b)+strings.Repeat(" ", 512)), math.MaxInt64, 0)
		require.ErrorIs(t, err, ErrFormat, "%d", n)
	}
	_, err := ReadHeader(strings.NewReader(""), -1, 0)
	require.ErrorIs(t, err, ErrFormat)
	long := file(`{"a":`+four+`}`+strings.Repeat(" ", 5000), 4)
	_, err = ReadHeader(strings.NewReader(string(long)), int64(len(long)), int64(len(long)-5))
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.NotErrorIs(t, err, ErrFormat, "others may read it")
	h, err := ReadHeader(strings.NewReader(string(long)), int64(len(long)), int64(len(long)-4))
	require.NoError(t, err)
	checkHeader(t, h, long)
	broken := errors.New("broken")
	_, err = ReadHeader(failing{broken}, 100, 0)
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, ErrFormat, "a disk that fails says nothing about the file")
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestAppendHeader(t *testing.T) {
	tensors := []Tensor{
		{Name: "b", DType: "BF16", Shape: []int{2, 2}},
		{Name: "u", DType: "U8", Shape: []int{3}},
		{Name: "f", DType: "F4", Shape: []int{2}},
		{Name: "a", DType: "BF16"},
		{Name: "i", DType: "I64", Shape: []int{0, 7}},
	}
	prefix := []byte("prefix")
	b, err := AppendHeader(prefix, map[string]string{"k": "\x00\x1f\x7f\"\\/\b\f\n\r\t é\u2028", "a": ""}, tensors)
	require.NoError(t, err)
	require.Equal(t, "prefix", string(b[:6]))
	b = b[6:]
	require.Zero(t, len(b)%8)
	want := `{"__metadata__":{"a":"","k":"\u0000\u001f` + "\x7f" + `\"\\/\b\f\n\r\t é` + "\u2028" + `"},` +
		`"i":{"dtype":"I64","shape":[0,7],"data_offsets":[0,0]},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},` +
		`"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[2,10]},"u":{"dtype":"U8","shape":[3],"data_offsets":[10,13]},` +
		`"f":{"dtype":"F4","shape":[2],"data_offsets":[13,14]}}`
	require.Equal(t, want, strings.TrimRight(string(b[8:]), " "))
	whole := append(b, make([]byte, 14)...)
	h, err := Parse(whole)
	require.NoError(t, err)
	tensors[1].Shape = []int{} // a scalar is read as one
	require.Equal(t, tensors, h.Tensors)
	checkHeader(t, h, whole)

	b, err = AppendHeader(nil, nil, nil)
	require.NoError(t, err)
	require.Equal(t, "\x08\x00\x00\x00\x00\x00\x00\x00{}      ", string(b))
	b, err = AppendHeader(nil, map[string]string{}, nil)
	require.NoError(t, err)
	want = `{"__metadata__":{}}`
	require.Equal(t, want, strings.TrimRight(string(b[8:]), " "))
}

func TestAppendHeaderRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		metadata map[string]string
		tensors  []Tensor
	}{
		"unknown dtype":             {nil, []Tensor{{Name: "a", DType: "X"}}},
		"no dtype":                  {nil, []Tensor{{Name: "a"}}},
		"negative dimension":        {nil, []Tensor{{Name: "a", DType: "U8", Shape: []int{-1}}}},
		"none of negative":          {nil, []Tensor{{Name: "a", DType: "U8", Shape: []int{0, -1}}}},
		"two negative dimensions":   {nil, []Tensor{{Name: "a", DType: "U8", Shape: []int{-1, -1}}}},
		"overflow":                  {nil, []Tensor{{Name: "a", DType: "U8", Shape: []int{1 << 40, 1 << 40}}}},
		"overflow of bits":          {nil, []Tensor{{Name: "a", DType: "U8", Shape: []int{1 << 61}}}},
		"overflow of the sum":       {nil, []Tensor{{Name: "a", DType: "U8", Shape: []int{1<<61 - 1}}, {Name: "b", DType: "U8", Shape: []int{1<<61 - 1}}, {Name: "c", DType: "U8", Shape: []int{3}}}},
		"half a byte":               {nil, []Tensor{{Name: "a", DType: "F4", Shape: []int{3}}}},
		"one name twice":            {nil, []Tensor{{Name: "a", DType: "U8"}, {Name: "a", DType: "F32"}}},
		"the name of the metadata":  {nil, []Tensor{{Name: "__metadata__", DType: "U8"}}},
		"a name that is no UTF-8":   {nil, []Tensor{{Name: "\xff", DType: "U8"}}},
		"a key that is no UTF-8":    {map[string]string{"\xff": ""}, nil},
		"a value that is no UTF-8":  {map[string]string{"": "\xed\xa0\x80"}, nil},
		"a header that is too long": {map[string]string{"": strings.Repeat("x", 1e8)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := AppendHeader([]byte("prefix"), c.metadata, c.tensors)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.Equal(t, "prefix", string(b))
		})
	}
}

// TestErrorsAreShort: a hostile file does not fill a log.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("x", 1e6)
	ones := strings.Repeat("1,", 1e5) + "1"
	for _, text := range []string{
		`{"` + long + `":["U8",[1],[1,2]]}`, `{"` + long + `":["U8",[3],[0,2]]}`, `{"` + long + `":["U8",[3],[0,3]]}`, `{"a":["` + long + `",[1],[1,2]]}`,
		`{"a":["U8",[` + ones + `],[0,2]]}`, `{"a":["U8",[-1` + strings.Repeat("1", 1e6) + `],[0,2]]}`,
	} {
		_, err := Parse(file(text, 2))
		require.ErrorIs(t, err, ErrFormat)
		require.Less(t, len(err.Error()), 400)
	}
	for _, x := range []Tensor{{Name: long, DType: "X"}, {Name: long + "\xff", DType: "U8"}, {Name: "a", DType: DType(long)}, {Name: "a", DType: "U8", Shape: slices.Repeat([]int{1 << 40}, 1e6)}} {
		_, err := AppendHeader(nil, nil, []Tensor{x})
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.Less(t, len(err.Error()), 400)
	}
}

// TestOrderOfTensors is that of the library: types with large elements first.
func TestOrderOfTensors(t *testing.T) {
	want := strings.Fields("U64 I64 F64 C64 F32 U32 I32 BF16 F16 U16 I16 F8_E5M2FNUZ F8_E4M3FNUZ F8_E8M0 F8_E4M3 F8_E5M2 I8 U8 F6_E3M2 F6_E2M3 F4 BOOL")
	var tensors []Tensor
	for d := range dtypes {
		tensors = append(tensors, Tensor{Name: string(d), DType: d, Shape: []int{4}})
	}
	_, err := AppendHeader(nil, nil, tensors)
	require.NoError(t, err)
	var got []string
	for _, x := range tensors {
		got = append(got, x.Name)
	}
	require.Equal(t, want, got)
}

func TestBits(t *testing.T) {
	require.Zero(t, DType("u8").Bits())
	require.Equal(t, 6, DType("F6_E3M2").Bits())
	require.Len(t, dtypes, 22)
}

// TestRandomHeaders writes and reads, and damages what it wrote.
func TestRandomHeaders(t *testing.T) {
	names := slices.Sorted(maps.Keys(dtypes))
	rapid.Check(t, func(t *rapid.T) {
		var tensors []Tensor
		for i := range rapid.IntRange(0, 6).Draw(t, "tensors") {
			x := Tensor{Name: fmt.Sprint(i, rapid.String().Draw(t, "name")), DType: rapid.SampledFrom(names).Draw(t, "dtype"), Shape: rapid.SliceOfN(rapid.IntRange(0, 9), 0, 4).Draw(t, "shape")}
			if n := x.DType.Bits(); n%8 != 0 {
				x.Shape = append(x.Shape, 4)
			}
			tensors = append(tensors, x)
		}
		metadata := rapid.OneOf(rapid.Just(map[string]string(nil)), rapid.MapOf(rapid.String(), rapid.String())).Draw(t, "metadata")
		b, err := AppendHeader(nil, metadata, tensors)
		require.NoError(t, err)
		for _, x := range tensors {
			b = append(b, make([]byte, x.Size)...)
		}
		h, err := Parse(b)
		require.NoError(t, err)
		require.Equal(t, metadata, h.Metadata)
		require.Equal(t, len(tensors), len(h.Tensors))
		for i, x := range tensors {
			x.Shape = append([]int{}, x.Shape...)
			require.Equal(t, x, h.Tensors[i])
		}
		checkHeader(t, h, b)
		again, err := AppendHeader(nil, h.Metadata, slices.Clone(h.Tensors))
		require.NoError(t, err)
		require.Equal(t, string(b[:h.Length]), string(again))

		at := rapid.IntRange(0, int(h.Length)-1).Draw(t, "at")
		b[at] ^= byte(1) << rapid.IntRange(0, 7).Draw(t, "bit")
		if h, err = Parse(b); err == nil {
			checkHeader(t, h, b)
		} else {
			require.ErrorIs(t, err, ErrFormat)
		}
	})
}

// TestMemoryOfHostileHeaders counts the bytes that headers take which were made to take many.
func TestMemoryOfHostileHeaders(t *testing.T) {
	many := func(n int, one func(i int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(one(i))
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"tensors":    `{` + many(50_000, func(i int) string { return fmt.Sprintf(`"%x":["U8",[],[0,0]]`, i) }) + `}`,
		"metadata":   `{"__metadata__":{` + many(100_000, func(i int) string { return fmt.Sprintf(`"%x":""`, i) }) + `}}`,
		"dimensions": `{"a":["U8",[` + many(500_000, func(int) string { return "1" }) + `],[0,1]]}`,
		"escapes":    `{"` + strings.Repeat(`\u0041`, 200_000) + `":["U8",[],[0,1]]}`,
		"arrays":     `{"a":{"x":[` + many(300_000, func(int) string { return "[]" }) + `],"y":0}}`,
		"depth":      `{"a":{"x":` + nest(1e6) + `}}`,
		"digits":     `{"a":{"x":` + strings.Repeat("1", 1e6) + `}}`,
	} {
		b := file(text, 1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Parse(b)
		runtime.ReadMemStats(&after)
		got := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(b))
		t.Logf("%s: %.1f bytes for each of %d", name, got, len(b))
		require.Less(t, got, 32.0, name)
	}
	b := file("", 512)
	binary.LittleEndian.PutUint64(b, 1e8)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := ReadHeader(strings.NewReader(string(b)), 1<<40, 1<<20)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<16))
}

func FuzzSafetensors(f *testing.F) {
	f.Add(file(`{"a":`+four+`}`, 4))
	f.Add(file(`{"__metadata__":{"k":"\ud83d\ude00"},"b":["F32",[1,0],[0,0]],"a":{"x":[1e5,{}],"dtype":{"U8":null},"shape":[2,2],"data_offsets":[0,4]}}`, 4))
	f.Add(file(`{"a":{"dtype":"F4","shape":[18446744073709551615,2],"data_offsets":[0,-1]}}`, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Parse(b)
		again, err2 := ReadHeader(strings.NewReader(string(b)), int64(len(b)), 0)
		require.Equal(t, err, err2)
		require.Equal(t, h, again)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		checkHeader(t, h, b)
		out, err := AppendHeader(nil, h.Metadata, slices.Clone(h.Tensors))
		require.NoError(t, err, "what can be read can be written")
		for _, x := range h.Tensors {
			out = append(out, x.Bytes(b)...)
		}
		h2, err := Parse(out)
		require.NoError(t, err)
		require.Equal(t, h.Metadata, h2.Metadata)
		require.Equal(t, len(h.Tensors), len(h2.Tensors))
	})
}
