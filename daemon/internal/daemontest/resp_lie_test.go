//go:build linux

package daemontest

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
)

var (
	respLieCount = flag.Int("resp.lies", 4000, "TestRESPLies sends so many lying commands")
	respLieSeed  = flag.Uint64("resp.lies.seed", 0, "seed of TestRESPLies; 0 makes one up")
)

// respLieMemory is what the daemon may take for itself.
const respLieMemory = 128 << 20

// TestRESPLies lets processes lie to a server of Redis's protocol. Clients beside them get right bytes; every command is
// answered by whole answers, or its connection closed; what the server takes is bounded, and nothing is held when the
// liars have gone.
func TestRESPLies(t *testing.T) {
	seed := seedOf(t, "resp.lies.seed", *respLieSeed)
	d := daemonRole{RESP: true, Dir: folder(t), Size: 64 << 20, Grace: respGrace}
	p := d.start(t, "")
	require.True(t, p.wait("ready"))
	honest := role{RESPClient: &respClientRole{Socket: d.socket(), Keys: 100, Clients: 4, Seed: seed % (1 << 20), MayMiss: true}}
	var liars []role
	for i := range uint64(liarProcesses) {
		liars = append(liars, role{RESPLiar: &respLiarRole{Socket: d.socket(), Commands: *respLieCount / liarProcesses, Seed: seed + i}})
	}
	r := p.lieTo(honest, liars, func() {}, func(crowd *crowd) {
		for range 20 { // it is still served
			<-crowd.steps
		}
		p.rests(crowd)
	})
	require.GreaterOrEqual(t, r.lies, *respLieCount/liarProcesses*liarProcesses)
	require.Less(t, r.after.Heap, r.before.Heap+16<<20)
	if !failpoint.Enabled { // the race detector takes more
		require.Less(t, r.most, int64(respLieMemory))
	}
	p.end()
	require.Empty(t, p.bad)
}

// respLiarRole is a process of clients that lie. It prints its counts.
type respLiarRole struct {
	Socket   string
	Commands int
	Seed     uint64
}

func (r *respLiarRole) run() {
	const clients = 4
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := map[string]int{}
	for i := range clients {
		wg.Go(func() {
			l := &respLiar{socket: r.Socket, rng: rand.New(rand.NewPCG(r.Seed, uint64(i))), counts: map[string]int{}}
			for sent := 0; sent < r.Commands/clients+clients; {
				n, err := l.connection()
				if err != nil {
					say("! %v", err)
					os.Exit(1)
				}
				sent += n
			}
			for _, c := range l.deaf {
				_ = c.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			for what, n := range l.counts {
				counts[what] += n
			}
		})
	}
	wg.Wait()
	b, err := json.Marshal(counts)
	if err != nil {
		panic(err)
	}
	say("%s", b)
}

type respLiar struct {
	socket string
	rng    *rand.Rand
	deaf   []net.Conn // connections that read nothing
	counts map[string]int
}

// connection sends some lies on one connection, and judges what comes back.
func (l *respLiar) connection() (n int, err error) {
	var sent []byte
	n = 1 + l.rng.IntN(40)
	for range n {
		sent = append(sent, l.command()...)
	}
	if l.rng.IntN(3) == 0 {
		sent = sent[:l.rng.IntN(len(sent)+1)]
	}
	raw, err := net.Dial("unix", l.socket)
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
	err = judgeRESP(bufio.NewReader(c))
	<-wrote // the daemon may have closed the connection
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return n, fmt.Errorf("neither answered nor closed: %w", err)
	}
	l.counts["sent"] += n
	return n, nil
}

// judgeRESP reads answers until the end, and reports what is none. The last one may be cut off.
func judgeRESP(in *bufio.Reader) (err error) {
	for err == nil {
		err = skipRESP(in)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return err
}

// skipRESP reads an answer of any kind.
func skipRESP(in *bufio.Reader) error {
	next, err := in.Peek(1)
	if err != nil {
		return err
	}
	if !strings.ContainsRune("*%_:", rune(next[0])) {
		line, _, err := readRESP(in)
		if err == nil && line[0] != '+' && line[0] != '-' && line[0] != '$' {
			err = wrongf("an answer is %.100q", line)
		}
		return err
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(line[1:], "\r\n"))
	switch {
	case line == "_\r\n":
		return nil
	case err != nil || n < 0 || n > 1<<20:
		return wrongf("an answer is %.100q", line)
	case line[0] == ':':
		return nil
	case line[0] == '%':
		n *= 2
	}
	for range n {
		if err := skipRESP(in); err != nil {
			return err
		}
	}
	return nil
}

// command is one that is right, or not even that.
func (l *respLiar) command() []byte {
	key := func() string { return fmt.Sprintf("lies%d@1@0@%x@half", l.rng.IntN(2), l.rng.IntN(20)) }
	var b []byte
	switch l.rng.IntN(12) {
	case 0, 1, 2:
		value := strings.Repeat(string(rune('a'+l.rng.IntN(3))), l.rng.IntN(1<<l.rng.IntN(17)))
		b = respCommand("SET", key()+[]string{"", "kv_bytes", "metadata", "\x00"}[l.rng.IntN(4)], value)
	case 3, 4:
		b = respCommand("GET", key())
	case 5:
		b = respCommand("EXISTS", key(), key()+"metadata")
	case 6:
		b = respCommand("MGET", key(), key(), "")
	case 7:
		b = respCommand("DEL", key(), key())
	case 8:
		list := [][]string{
			{"HELLO", "3"}, {"HELLO", "9"}, {"AUTH", "x"}, {"RESET"}, {"FLUSHALL"}, {"INFO"}, {"COMMAND", "DOCS"}, {"TIME"}, {"CLIENT", "ID"},
			{"SET", key(), "v", "EX", "1"}, {strings.Repeat("n", 1<<l.rng.IntN(18))}, {"QUIT"}, {},
		}
		b = respCommand(list[l.rng.IntN(len(list))]...)
	case 9: // more than is sent
		b = respCommand("SET", key(), "v")
		n := []int64{-1, 1 << 20, 512 << 20, 1<<63 - 1, l.rng.Int64()}[l.rng.IntN(5)]
		b = []byte(strings.Replace(string(b), "$1\r\nv", fmt.Sprintf("$%d\r\nv", n), 1))
	case 10:
		b = fmt.Appendf(nil, "*%d\r\n", []int64{0, -1, 1 << 20, 1<<63 - 1, l.rng.Int64()}[l.rng.IntN(5)])
	default:
		b = respCommand("STRLEN", key())
	}
	if l.rng.IntN(8) == 0 {
		for range 1 + l.rng.IntN(4) {
			b[l.rng.IntN(len(b))] ^= 1 << l.rng.IntN(8)
		}
	}
	return b
}
