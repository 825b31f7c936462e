package main

import "syscall"

// memory is what chunks lie in, in real size, since the search for room looks
// at the more blocks the larger a put is. It takes next to nothing: only headers
// are written and never read, so pages go back now and then.
type memory struct {
	buf     []byte
	touched int
}

const (
	giveBack     = 1 << 14 // headers: 64 MiB of pages
	noHugePages  = 15      // MADV_NOHUGEPAGE: a header should not take 2 MiB
	privateSpace = syscall.MAP_ANON | syscall.MAP_PRIVATE | syscall.MAP_NORESERVE
)

func newMemory(size int64) *memory {
	buf, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, privateSpace)
	if err != nil {
		panic(err)
	}
	_ = syscall.Madvise(buf, noHugePages) // not every kernel has them
	return &memory{buf: buf}
}

// touch counts one more header that was written.
func (m *memory) touch() {
	if m.touched++; m.touched%giveBack == 0 {
		if err := syscall.Madvise(m.buf, syscall.MADV_DONTNEED); err != nil {
			panic(err)
		}
	}
}

func (m *memory) close() {
	if err := syscall.Munmap(m.buf); err != nil {
		panic(err)
	}
	m.buf = nil
}
