package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"

	"github.com/ringcache/ringcache/serde"
)

// socketLink sends the bare bytes of an item through a Unix socket: one copy in and one out, nothing encoded.
type socketLink struct {
	listener net.Listener
	conn     net.Conn
	item     *serde.Item
}

func overSocket() maker {
	return over("Unix socket", "receive", func(*environment) link { return &socketLink{} })
}

func (l *socketLink) open(c Case, folder string) (_ map[string]any, err error) {
	l.item = qwenItem(c.Size)
	path := filepath.Join(folder, "socket")
	l.listener, err = net.Listen("unix", path)
	return map[string]any{"way": "socket", "endpoint": path}, err
}

func (l *socketLink) accept() (err error) {
	l.conn, err = l.listener.Accept()
	return err
}

func (l *socketLink) send() (int64, error) {
	began := now()
	pixels, grid := tensorOf(l.item, 0).Data, tensorOf(l.item, 1).Data
	all := net.Buffers{binary.LittleEndian.AppendUint64(nil, uint64(len(pixels)+len(grid))), pixels, grid}
	_, err := all.WriteTo(l.conn)
	return began, err
}

func (l *socketLink) answer() (int64, error) {
	var b [8]byte
	_, err := io.ReadFull(l.conn, b[:])
	return int64(binary.LittleEndian.Uint64(b[:])), err
}

func (l *socketLink) Close() (err error) {
	if l.conn != nil {
		err = l.conn.Close()
	}
	if l.listener != nil {
		err = errors.Join(err, l.listener.Close())
	}
	return err
}
