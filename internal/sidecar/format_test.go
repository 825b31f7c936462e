//go:build linux

package sidecar_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/sidecar"
)

// These tests take the bytes of a sidecar from docs/format.md alone: every offset, size and
// range of a checksum is read from the section Sidecar of that document. One direction makes
// a sidecar from the document and opens it with the package, the other one makes a sidecar
// with the package and reads it by the document. TestFormatTestCanFail changes one number of
// the document after the other.

// newSegment makes a file with an identity, and removes the sidecar of an earlier one.
func newSegment(dir string) (*os.File, *syscall.Stat_t, error) {
	if err := os.RemoveAll(filepath.Join(dir, "s.ctl")); err != nil {
		return nil, nil, err
	}
	seg, err := os.Create(filepath.Join(dir, "s"))
	if err != nil {
		return nil, nil, err
	}
	st, err := seg.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, seg.Close())
	}
	return seg, st.Sys().(*syscall.Stat_t), nil
}

func TestSidecarOfTheDocumentIsRead(t *testing.T) {
	f := readFormat(t, sample().o.Slots, sample().o.Objects)
	require.NoError(t, f.opened(t.TempDir()))
}

func TestSidecarIsAsTheDocumentHasIt(t *testing.T) {
	f := readFormat(t, sample().o.Slots, sample().o.Objects)
	require.NoError(t, f.made(t.TempDir()))
}

// Every number of the tables counts: with any other one, both directions find a difference.
func TestFormatTestCanFail(t *testing.T) {
	dir := t.TempDir()
	changes := 0
	fails := func(what string, change func(f *format)) {
		t.Run(what, func(t *testing.T) {
			for direction, check := range map[string]func(*format, string) error{"opened": (*format).opened, "made": (*format).made} {
				f := readFormat(t, sample().o.Slots, sample().o.Objects)
				change(f)
				require.Error(t, guarded(func() error { return check(f, dir) }), direction)
			}
		})
		changes++
	}
	for table, rows := range readFormat(t, sample().o.Slots, sample().o.Objects).tables {
		for i, r := range rows {
			if r.text == "" || strings.HasPrefix(r.text, "only locked") {
				continue // has no value
			}
			what := table + " " + strings.Fields(r.text)[0] + strconv.Itoa(i)
			if table == "Slots" && r.text == "pid, u32, for people" || table == "Header" && strings.HasPrefix(r.text, "user id") {
				continue // nobody reads it: see below
			}
			fails(what+" moved", func(f *format) { f.tables[table][i].at += 4 })
		}
	}
	for _, c := range []struct{ table, row, old, new string }{
		{"Header", "`RINGCTL`", "RINGCTL", "RINGCTX"},
		{"Header", "layout version", "u32: 1", "u32: 2"},
		{"Header", "policy", "2 pool", "1 pool"},
		{"Header", "checksum", "0 to 151", "0 to 150"},
		{"State", "checksum", "0 to 59", "0 to 58"},
		{"Table", "mark", "8 to 39", "8 to 38"},
		{"Table", "mark", "FREEFREE", "FREEFROM"},
	} {
		fails(c.table+" "+c.new, func(f *format) {
			for i, r := range f.tables[c.table] {
				if strings.HasPrefix(r.text, c.row) {
					f.tables[c.table][i].text = strings.Replace(r.text, c.old, c.new, 1)
					require.NotEqual(t, r.text, f.tables[c.table][i].text)
				}
			}
		})
	}
	require.Greater(t, changes, 40)

	// What nobody reads is found by what is written.
	for _, c := range []struct{ table, row string }{{"Slots", "pid, u32, for people"}, {"Header", "user id"}} {
		if c.row == "user id" && os.Geteuid() == 0 {
			continue // as are the bytes behind it
		}
		f := readFormat(t, sample().o.Slots, sample().o.Objects)
		for i, r := range f.tables[c.table] {
			if strings.HasPrefix(r.text, c.row) {
				f.tables[c.table][i].at += 4
			}
		}
		require.Error(t, guarded(func() error { return f.made(dir) }), c)
	}
}

// guarded makes a panic an error: a changed table may lead out of the file.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// lockByte takes the lock on a byte for an opening of the file.
func lockByte(f *os.File, at int64) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1})
}

func TestLocksAreThoseOfTheDocument(t *testing.T) {
	dir := t.TempDir()
	f := readFormat(t, sample().o.Slots, sample().o.Objects)
	seg, _, err := newSegment(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, seg.Close()) }()
	w, err := sidecar.Create(dir, "s", sample().o, seg)
	require.NoError(t, err)
	r, err := sidecar.Open(dir, "s")
	require.NoError(t, err)
	other := func(lock func(f *os.File) error) error { // what another process would get
		f, err := os.OpenFile(filepath.Join(dir, "s.ctl"), os.O_RDWR, 0)
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		return lock(f)
	}
	writers := func(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
	counting := func(file *os.File) error { return lockByte(file, int64(f.row("Sidecar", "only locked").at)) }
	slot := func(file *os.File) error { return lockByte(file, f.slotLock(0)) }

	require.ErrorIs(t, other(writers), unix.EWOULDBLOCK)
	require.NoError(t, other(counting))
	require.NoError(t, other(slot))
	require.NoError(t, r.Lock(t.Context()))
	require.ErrorIs(t, other(counting), unix.EAGAIN)
	require.NoError(t, r.Unlock())
	require.NoError(t, other(counting))
	taken, err := r.TakeSlot(1)
	require.NoError(t, err)
	require.ErrorIs(t, other(slot), unix.EAGAIN)
	require.NoError(t, taken.Close())
	require.NoError(t, other(slot))
	_, err = r.TakeSlot(1)
	require.NoError(t, err)
	require.ErrorIs(t, other(slot), unix.EAGAIN)
	require.NoError(t, r.Close(), "ends as a process does")
	require.NoError(t, other(slot))
	require.NoError(t, w.Close())
	require.NoError(t, other(writers))
}
