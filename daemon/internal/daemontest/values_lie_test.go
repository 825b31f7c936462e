//go:build linux

package daemontest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"
)

// lieToServerOfValues lets processes lie to a daemon that serves a protocol of values. Clients beside them get right
// bytes; every request is answered by whole answers, or its connection closed; what the server takes is bounded, and
// nothing is held when the liars have gone.
func lieToServerOfValues(t *testing.T, protocol string, lies int, seed uint64) {
	t.Helper()
	d := daemonRole{Protocol: protocol, Dir: folder(t), Size: 64 << 20, Grace: valueProtocols[protocol].grace}
	honest := role{ValueClient: &valueClientRole{
		Protocol: protocol, Socket: d.socket(), Keys: 100, Clients: 4, Seed: seed % (1 << 20), MayMiss: true,
	}}
	d.surviveLies(t, honest, lies, func(i uint64, lies int) role {
		return role{ValueLiar: &valueLiarRole{Protocol: protocol, Socket: d.socket(), Requests: lies, Seed: seed + i}}
	}, 16<<20, 128<<20)
}

// lyingConn makes what liars send on one connection.
type lyingConn interface {
	// request is one that is right, or not even that.
	request() []byte
	// judge looks at all that came back. If the connection was cut the daemon may have sent more.
	judge(got []byte, cut bool) error
}

// valueLiarRole is a process of clients that lie. It prints its counts.
type valueLiarRole struct {
	Protocol string
	Socket   string
	Requests int
	Seed     uint64
}

func (r *valueLiarRole) run() {
	runLiars(r.Requests, func(i uint64, n int, counts map[string]int) error {
		l := &valueLiar{r: r, rng: rand.New(rand.NewPCG(r.Seed, i)), counts: counts}
		for n > 0 {
			sent, err := l.connection()
			if err != nil {
				return err
			}
			n -= sent
		}
		for _, c := range l.deaf {
			_ = c.Close()
		}
		return nil
	})
}

type valueLiar struct {
	r      *valueLiarRole
	rng    *rand.Rand
	deaf   []net.Conn // connections that read nothing
	counts map[string]int
}

// connection sends some lies on one connection, and judges what comes back.
func (l *valueLiar) connection() (n int, err error) {
	lies := valueProtocols[l.r.Protocol].lies(l.rng)
	var sent []byte
	n = 1 + l.rng.IntN(40)
	for range n {
		sent = append(sent, lies.request()...)
	}
	if l.rng.IntN(3) == 0 {
		sent = sent[:l.rng.IntN(len(sent)+1)]
	}
	raw, err := net.Dial("unix", l.r.Socket)
	if err != nil {
		return n, err
	}
	c := raw.(*net.UnixConn)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return n, err
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		wrote <- errors.Join(err, c.CloseWrite())
	}()
	if l.rng.IntN(50) == 0 { // nobody reads
		l.deaf = append(l.deaf, c)
		if len(l.deaf) > 2 {
			_ = l.deaf[0].Close()
			l.deaf = l.deaf[1:]
		}
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // the daemon may not read any more, either
		<-wrote
		l.counts["deaf"] += n
		return n, nil
	}
	defer c.Close()
	got, err := io.ReadAll(c)
	<-wrote // the daemon may have closed the connection
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return n, fmt.Errorf("neither answered nor closed: %w", err)
	}
	l.counts["sent"] += n
	return n, lies.judge(got, err != nil)
}
