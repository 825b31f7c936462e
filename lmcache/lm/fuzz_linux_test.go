package lm

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzHeader: what can be decoded is encoded to what means the same, and nothing panics.
func FuzzHeader(f *testing.F) {
	for _, g := range goldens(f) {
		for _, x := range g.Requests[:5] {
			f.Add(int(g.form), unhex(f, x.Hex))
		}
		for _, x := range g.Replies[:5] {
			f.Add(int(g.form), unhex(f, x.Hex))
		}
	}
	f.Fuzz(func(t *testing.T, form int, b []byte) {
		x := Form(uint(form) % 3)
		if p, err := x.DecodeReply(b); err == nil {
			again, err := x.AppendReply(nil, &p)
			require.NoError(t, err)
			q, err := x.DecodeReply(again)
			require.NoError(t, err)
			require.Equal(t, p, q)
		}
		q, err := x.DecodeRequest(b)
		if err != nil {
			return
		}
		if k, err := x.KeyOf(q.Key); err == nil {
			again, err := x.KeyOf(k.Name)
			require.NoError(t, err)
			require.Equal(t, k, again, "the canonical spelling is its own")
			require.NoError(t, k.Validate())
		}
		q.Length = max(q.Length, 0) // of what is no Put it means nothing
		again, err := x.AppendRequest(nil, &q)
		require.NoError(t, err)
		same, err := x.DecodeRequest(again)
		require.NoError(t, err)
		require.Equal(t, q, same)
	})
}

// FuzzServer sends any bytes to a server. It answers by whole replies of one form, and keeps nothing but values.
func FuzzServer(f *testing.F) {
	for _, g := range goldens(f) {
		for _, x := range g.Connections {
			var all []byte
			for _, step := range x.Steps {
				all = append(all, unhex(f, step.Send)...)
			}
			f.Add(all)
		}
	}
	b := newBed(f, bedOptions{options: Options{MaxValue: 1 << 19}})
	f.Fuzz(func(t *testing.T, sent []byte) {
		raw := &scripted{in: bytes.NewReader(sent)}
		c := &conn{server: b.server, raw: raw}
		_ = c.serve() // it may refuse what was sent
		require.Empty(t, b.store.Leases())
		got := &raw.out
		for got.Len() > 0 {
			p, err := c.form.DecodeReply(got.Next(c.form.ReplySize()))
			require.NoError(t, err)
			require.Len(t, got.Next(int(p.Length)), int(p.Length))
		}
	})
}

// scripted is the connection of a client that sends what is in in, and then goes.
type scripted struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (s *scripted) Read(p []byte) (int, error)      { return s.in.Read(p) }
func (s *scripted) Write(p []byte) (int, error)     { return s.out.Write(p) }
func (s *scripted) SetDeadline(time.Time) error     { return nil }
func (s *scripted) SetReadDeadline(time.Time) error { return nil }
