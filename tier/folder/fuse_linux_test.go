package folder

import (
	"flag"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
)

var fuseNeeded = flag.Bool("fuse", false, "tests fail, and do not skip, where no file system can be mounted")

// server is a file system over a folder, as a file server and its client on one host: what the kernel knows of folders and
// files may be old, and calls hang or fail as a test wants. Several over one folder are several hosts.
type server struct {
	fuse.RawFileSystem
	dir  string        // where it is mounted
	skew time.Duration // of the server's clock

	mu    sync.Mutex
	gate  chan struct{} // is closed to end what hangs; nil lets all pass
	fail  func(op, name string) syscall.Errno
	stuck int // calls that hang
}

// mount mounts a folder, with caches of names and attributes that are believed for a while.
func mount(t testing.TB, backing string, believed, skew time.Duration) *server {
	t.Helper()
	root, err := fs.NewLoopbackRoot(backing)
	require.NoError(t, err)
	o := &fs.Options{EntryTimeout: &believed, AttrTimeout: &believed, NegativeTimeout: &believed}
	o.DirectMount = true
	o.DisabledCapabilities = fuse.CAP_PASSTHROUGH // reads and writes come by here
	o.DisableReadDirPlus = true                   // it would hand out attributes without the skew
	s := &server{RawFileSystem: fs.NewNodeFS(root, o), dir: t.TempDir(), skew: skew}
	m, err := fuse.NewServer(s, s.dir, &o.MountOptions)
	if err != nil {
		if *fuseNeeded {
			t.Fatalf("a file system can't be mounted: %v", err)
		}
		t.Skipf("a file system can't be mounted here, which needs /dev/fuse, and root or fusermount3: %v", err)
	}
	go m.Serve()
	require.NoError(t, m.WaitMount())
	t.Cleanup(func() {
		s.answer()
		// Files may be open for a moment, of calls that were abandoned.
		require.Eventually(t, func() bool { return m.Unmount() == nil }, time.Minute, 10*time.Millisecond)
	})
	return s
}

// hang lets calls wait until answer.
func (s *server) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *server) answer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		close(s.gate)
		s.gate = nil
	}
}

func (s *server) failWith(fail func(op, name string) syscall.Errno) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// hung returns how many calls hang.
func (s *server) hung() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck
}

// pass waits if calls hang, and returns the error that the test wants.
func (s *server) pass(op, name string) fuse.Status {
	s.mu.Lock()
	gate, fail := s.gate, s.fail
	if gate != nil {
		s.stuck++
	}
	s.mu.Unlock()
	if gate != nil {
		<-gate
		s.mu.Lock()
		s.stuck--
		s.mu.Unlock()
	}
	if fail != nil {
		return fuse.Status(fail(op, name))
	}
	return fuse.OK
}

func (s *server) shift(a *fuse.Attr) {
	a.Mtime = uint64(int64(a.Mtime) + int64(s.skew/time.Second))
}

func (s *server) Lookup(c <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if st := s.pass("lookup", name); st != fuse.OK {
		return st
	}
	st := s.RawFileSystem.Lookup(c, h, name, out)
	s.shift(&out.Attr)
	return st
}

func (s *server) GetAttr(c <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if st := s.pass("getattr", ""); st != fuse.OK {
		return st
	}
	st := s.RawFileSystem.GetAttr(c, in, out)
	s.shift(&out.Attr)
	return st
}

// Statx has the kernel ask by GetAttr.
func (*server) Statx(<-chan struct{}, *fuse.StatxIn, *fuse.StatxOut) fuse.Status { return fuse.ENOSYS }

func (s *server) SetAttr(c <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if st := s.pass("setattr", ""); st != fuse.OK {
		return st
	}
	st := s.RawFileSystem.SetAttr(c, in, out)
	s.shift(&out.Attr)
	return st
}

func (s *server) Open(c <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if st := s.pass("open", ""); st != fuse.OK {
		return st
	}
	return s.RawFileSystem.Open(c, in, out)
}

func (s *server) Read(c <-chan struct{}, in *fuse.ReadIn, b []byte) (fuse.ReadResult, fuse.Status) {
	if st := s.pass("read", ""); st != fuse.OK {
		return nil, st
	}
	return s.RawFileSystem.Read(c, in, b)
}

func (s *server) Create(c <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if st := s.pass("create", name); st != fuse.OK {
		return st
	}
	st := s.RawFileSystem.Create(c, in, name, out)
	s.shift(&out.Attr)
	return st
}

func (s *server) Write(c <-chan struct{}, in *fuse.WriteIn, b []byte) (uint32, fuse.Status) {
	if st := s.pass("write", ""); st != fuse.OK {
		return 0, st
	}
	return s.RawFileSystem.Write(c, in, b)
}

// Writev has the library call Write.
func (*server) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

func (s *server) Fsync(c <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if st := s.pass("fsync", ""); st != fuse.OK {
		return st
	}
	return s.RawFileSystem.Fsync(c, in)
}

func (s *server) OpenDir(c <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if st := s.pass("opendir", ""); st != fuse.OK {
		return st
	}
	return s.RawFileSystem.OpenDir(c, in, out)
}

func (s *server) Rename(c <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	if st := s.pass("rename", to); st != fuse.OK {
		return st
	}
	return s.RawFileSystem.Rename(c, in, from, to)
}

func (s *server) Link(c <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	if st := s.pass("link", name); st != fuse.OK {
		return st
	}
	st := s.RawFileSystem.Link(c, in, name, out)
	s.shift(&out.Attr)
	return st
}

func (s *server) Unlink(c <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	if st := s.pass("unlink", name); st != fuse.OK {
		return st
	}
	return s.RawFileSystem.Unlink(c, h, name)
}

// times fails the first calls of an operation with an error.
func times(n int, op string, errno syscall.Errno) func(string, string) syscall.Errno {
	return func(at, name string) syscall.Errno {
		if at != op || n == 0 || strings.HasPrefix(name, ".") {
			return 0
		}
		n--
		return errno
	}
}
