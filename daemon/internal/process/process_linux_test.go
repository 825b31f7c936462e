package process

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

const childVariable = "RINGCACHE_TEST_PROCESS"

// TestMain: a child does what the variable says: connects to a socket, directly or through a child or after an exec of its own, and ends
// with its input.
func TestMain(m *testing.M) {
	what, path, _ := strings.Cut(os.Getenv(childVariable), ":")
	if what == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if what != "inherited" && what != "wait" {
		conn, err := net.Dial("unix", path)
		if err != nil {
			panic(err)
		}
		switch what {
		case "heir": // the connection goes on in a child, and this process ends
			f, err := conn.(*net.UnixConn).File()
			if err != nil {
				panic(err)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"=inherited")
			cmd.Stdin, cmd.ExtraFiles = os.Stdin, []*os.File{f}
			if err := cmd.Start(); err != nil {
				panic(err)
			}
			fmt.Println(cmd.Process.Pid)
			os.Exit(0)
		case "exec":
			if err := syscall.Exec(os.Args[0], os.Args[:1], append(os.Environ(), childVariable+"=wait")); err != nil {
				panic(err)
			}
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// child is a process of a test.
type child struct {
	*exec.Cmd
	stdin io.WriteCloser
	out   io.ReadCloser
}

func start(t *testing.T, what string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(os.Args[0])}
	c.Env = append(os.Environ(), childVariable+"="+what)
	c.Stderr = os.Stderr
	var err error
	c.stdin, err = c.StdinPipe()
	require.NoError(t, err)
	c.out, err = c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
}

func listen(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	if len(path) > 100 {
		dir, err := os.MkdirTemp("", "rc")
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		path = filepath.Join(dir, "s")
	}
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.UnixListener), path
}

// accept returns the peer of the next connection.
func accept(t *testing.T, l *net.UnixListener) (*Process, *net.UnixConn) {
	t.Helper()
	conn, err := l.AcceptUnix()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	p, user, err := Peer(conn)
	require.NoError(t, err)
	require.Equal(t, os.Geteuid(), int(user))
	t.Cleanup(p.Close)
	return p, conn
}

// TestPeer: connections of one process are of the same process, and another one is another.
func TestPeer(t *testing.T) {
	l, path := listen(t)
	for range 2 {
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		defer conn.Close()
	}
	own, _ := accept(t, l)
	again, _ := accept(t, l)
	c := start(t, "connect:"+path)
	other, _ := accept(t, l)
	require.Equal(t, os.Getpid(), own.ID().PID)
	require.Equal(t, c.Process.Pid, other.ID().PID)
	require.True(t, own.ID().Known() && own.Watchable() && other.Watchable())
	require.NotZero(t, own.ID().Namespace)
	require.Equal(t, Same, own.Compare(again))
	require.Equal(t, Different, own.Compare(other))

	opened, err := Open(other.ID())
	require.NoError(t, err)
	defer opened.Close()
	require.Equal(t, Same, opened.Compare(other))
	require.Equal(t, other.ID(), opened.ID())
}

// TestDeath: a wait ends with the process, not before, and with Close.
func TestDeath(t *testing.T) {
	l, path := listen(t)
	c := start(t, "connect:"+path)
	p, conn := accept(t, l)
	q, err := Open(p.ID())
	require.NoError(t, err)
	require.NoError(t, conn.Close()) // a closed connection is no death
	ends := make(chan bool)
	go func() { ends <- p.Wait() }()
	closed := make(chan bool)
	go func() { closed <- q.Wait() }()
	q.Close()
	q.Close()
	require.False(t, <-closed)
	select {
	case <-ends:
		t.Fatal("the process lives")
	default:
	}
	c.kill(t)
	require.True(t, <-ends)
	require.True(t, p.Wait(), "again")
	_, err = Open(p.ID())
	require.ErrorIs(t, err, ErrDead)
}

// TestZombie: a process that nobody has waited for is dead.
func TestZombie(t *testing.T) {
	l, path := listen(t)
	c := start(t, "connect:"+path)
	p, _ := accept(t, l)
	require.NoError(t, c.Process.Kill())
	require.True(t, p.Wait())
	_, err := Open(p.ID())
	require.ErrorIs(t, err, ErrDead)
	_, err = os.Stat("/proc/" + strconv.Itoa(p.ID().PID))
	require.NoError(t, err, "it is still in the table")
}

// TestPeerThatIsGone: who connected and died before anybody looked is dead.
func TestPeerThatIsGone(t *testing.T) {
	l, path := listen(t)
	c := start(t, "connect:"+path)
	conn, err := l.AcceptUnix()
	require.NoError(t, err)
	defer conn.Close()
	c.kill(t)
	_, _, err = Peer(conn)
	require.ErrorIs(t, err, ErrDead)
}

// TestUsedNumber: the number of a dead process that is another one's now is no life.
func TestUsedNumber(t *testing.T) {
	start, err := startOf(os.Getpid())
	require.NoError(t, err)
	id := ID{PID: os.Getpid(), Start: start, Namespace: namespace()}
	p, err := Open(id)
	require.NoError(t, err)
	p.Close()
	for _, wrong := range []uint64{start - 1, start + 1} {
		id.Start = wrong
		_, err = Open(id)
		require.ErrorIs(t, err, ErrDead)
	}
}

// TestOtherNamespace: a number means nothing in another PID namespace, so the process may well live.
func TestOtherNamespace(t *testing.T) {
	start, err := startOf(os.Getpid())
	require.NoError(t, err)
	for _, id := range []ID{{}, {PID: 7}, {Start: 7}, {PID: os.Getpid(), Start: start, Namespace: namespace() + 1}, {PID: 1 << 22, Start: 1, Namespace: 1}} {
		_, err = Open(id)
		require.Error(t, err)
		require.NotErrorIs(t, err, ErrDead, "%v", id)
	}
	_, err = Open(ID{PID: 1<<22 + 1, Start: 1})
	require.ErrorIs(t, err, ErrDead, "no process has such a number")
}

// TestHeir: a connection is that of who made it, also when only a child has it any more.
func TestHeir(t *testing.T) {
	l, path := listen(t)
	c := start(t, "heir:"+path)
	conn, err := l.AcceptUnix()
	require.NoError(t, err)
	defer conn.Close()
	p, _, err := Peer(conn)
	if err == nil {
		defer p.Close()
		require.Equal(t, c.Process.Pid, p.ID().PID)
		require.True(t, p.Wait())
	} else {
		require.ErrorIs(t, err, ErrDead)
	}
	var heir int
	_, err = fmt.Fscan(c.out, &heir)
	require.NoError(t, err)
	require.NoError(t, unix.Kill(heir, 0), "the child lives")
	require.NoError(t, c.stdin.Close())
}

// TestExec: a process that executes another program is the same process.
func TestExec(t *testing.T) {
	l, path := listen(t)
	c := start(t, "exec:"+path)
	p, conn := accept(t, l)
	one := make([]byte, 1)
	_, err := conn.Read(one)
	require.ErrorIs(t, err, io.EOF, "the new program does not have the connection")
	q, err := Open(p.ID())
	require.NoError(t, err)
	defer q.Close()
	require.Equal(t, Same, p.Compare(q))
	c.kill(t)
	require.True(t, q.Wait())
}

// TestNamesOfProcesses: a name may look like the rest of the line.
func TestNamesOfProcesses(t *testing.T) {
	want, err := startOf(os.Getpid())
	require.NoError(t, err)
	path := "/proc/" + strconv.Itoa(os.Getpid()) + "/comm"
	was, err := os.ReadFile(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, os.WriteFile(path, was, 0)) }()
	require.NoError(t, os.WriteFile(path, []byte("x) R 1 2 3 4"), 0))
	got, err := startOf(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID{rapid.IntRange(0, 1<<22).Draw(t, "pid"), rapid.Uint64().Draw(t, "start"), rapid.Uint64().Draw(t, "namespace")}
		words := strings.Split(id.String(), " ")
		require.Len(t, words, 2)
		back, err := Parse(words[0], words[1])
		require.NoError(t, err)
		require.Equal(t, id, back)
	})
	require.Equal(t, "0 0", ID{}.String())
	for _, bad := range [][2]string{{"", "1"}, {"x", "1"}, {"-1", "1"}, {"1", ""}, {"1", "-1"}, {"1", "1@"}, {"1", "@1"}, {"1", "1@x"}, {"1", "18446744073709551616"}, {"99999999999999999999", "1"}} {
		_, err := Parse(bad[0], bad[1])
		require.Error(t, err, "%q", bad)
	}
}

func TestCompare(t *testing.T) {
	known := func(pid int, start uint64, inode uint64) *Process {
		return &Process{id: ID{pid, start, 1}, inode: inode}
	}
	unknown := Unknown()
	for _, c := range []struct {
		p, q *Process
		want Relation
	}{
		{unknown, unknown, Same},
		{Unknown(), Unknown(), Unclear},
		{known(1, 2, 0), known(1, 2, 0), Same},
		{known(1, 2, 0), known(1, 3, 0), Different},
		{known(1, 2, 0), known(2, 2, 0), Different},
		{known(1, 2, 5), known(1, 2, 0), Same},
		{known(1, 2, 5), known(1, 2, 6), Different},
		{known(0, 0, 5), known(0, 0, 5), Same},
		{known(0, 0, 5), known(0, 0, 6), Different},
		{known(0, 0, 5), Unknown(), Unclear},
		{known(1, 2, 5), Unknown(), Different},
	} {
		require.Equal(t, c.want, c.p.Compare(c.q), "%+v %+v", c.p, c.q)
		require.Equal(t, c.want, c.q.Compare(c.p), "%+v %+v", c.q, c.p)
	}
	require.False(t, unknown.Wait())
	require.False(t, unknown.Watchable())
	unknown.Close()
}

// TestManyWatches: a watch takes no thread.
func TestManyWatches(t *testing.T) {
	c := start(t, "wait")
	first, err := open(c.Process.Pid)
	require.NoError(t, err)
	defer first.Close()
	done := make(chan bool)
	const n = 300
	for range n {
		p, err := Open(first.ID())
		require.NoError(t, err)
		t.Cleanup(p.Close)
		go func() { done <- p.Wait() }()
	}
	c.kill(t)
	for range n {
		select {
		case dead := <-done:
			require.True(t, dead)
		case <-time.After(2 * time.Minute):
			t.Fatal("a death was not noticed")
		}
	}
}
