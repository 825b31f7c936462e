package model_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/model"
)

// newPool makes a pool of 4 units at 32, 96, 160 and 224 with chunks 7 and 8 in the first two.
func newPool(t *testing.T) (*model.Pool, []byte) {
	t.Helper()
	p := model.NewPool(300, 32, 64, 7)
	require.NoError(t, p.Alloc(56, 32, 7))
	require.NoError(t, p.Alloc(1, 96, 8))
	m := make([]byte, 300)
	put := func(at int, id, size uint32) {
		binary.LittleEndian.PutUint32(m[at:], id)
		binary.LittleEndian.PutUint32(m[at+4:], size)
	}
	put(32, 0xfffffffe, 64)
	put(96, 0xfffffffe, 9)
	require.NoError(t, p.Check(m))
	return p, m
}

func TestPoolReportsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(p *model.Pool, m []byte) error
		want string // "" if it is right
	}{
		"any free unit": {func(p *model.Pool, _ []byte) error { return p.Alloc(3, 224, 9) }, ""},
		"taken": {func(p *model.Pool, _ []byte) error {
			return p.Alloc(3, 96, 9)
		}, "takes bytes of chunk 8"},
		"reaches into another": {func(p *model.Pool, _ []byte) error {
			_ = p.Free(7)
			return p.Alloc(57, 32, 9)
		}, "takes bytes of chunk 8"},
		"between units":  {func(p *model.Pool, _ []byte) error { return p.Alloc(3, 170, 9) }, "multiples of 64"},
		"behind the end": {func(p *model.Pool, _ []byte) error { return p.Alloc(57, 224, 9) }, "within 4"},
		"id again": {func(p *model.Pool, _ []byte) error {
			return p.Alloc(3, 160, 8)
		}, "the id 8 is not the next"},
		"id of a live chunk is left out": {func(p *model.Pool, _ []byte) error {
			p.NextID = 7
			return p.Alloc(3, 160, 9)
		}, ""},
		"refused though there is room": {func(p *model.Pool, _ []byte) error {
			return p.Refuse(120)
		}, "120 bytes were refused"},
		"refused, no room": {func(p *model.Pool, _ []byte) error { return p.Refuse(121) }, ""},
		"freed twice": {func(p *model.Pool, _ []byte) error {
			_ = p.Free(7)
			return p.Free(7)
		}, "no chunk 7"},
		"not published": {func(p *model.Pool, m []byte) error {
			_ = p.Publish(7)
			return p.Check(m)
		}, "want 7 and 64"},
		"not killed": {func(p *model.Pool, m []byte) error {
			_ = p.Kill(8)
			return p.Check(m)
		}, "want 4294967295 and 9"},
		"freed and not dead": {func(p *model.Pool, m []byte) error {
			_ = p.Free(8)
			return p.Check(m)
		}, "no dead one"},
		"dead until it is another's": {func(p *model.Pool, m []byte) error {
			_ = p.Free(7)
			binary.LittleEndian.PutUint32(m[32:], 0xffffffff)
			return p.Check(m)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, m := newPool(t)
			err := c.do(p, m)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}
