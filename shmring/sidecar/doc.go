// Package sidecar reads and writes the file <name>.ctl beside a segment, from which another
// writer takes the segment over. docs/format.md, section Sidecar, has every byte of it and
// which words are protected by what; layout.go has the same as constants.
//
// A [File] contains:
//
//   - what the segment is ([Options]), written once;
//   - the [State] of its writer: epoch, next id, number of readers, whether the writer ended
//     by plan. [File.SetState] changes all of it in one step;
//   - a table with a [Record] of each object and a word that the writer keeps with it:
//     [File.Put], [File.SetUse], [File.Drop], and [File.Records] for the next writer. Each
//     changes the table by one store;
//   - a [Slot] for each reader, in which it names the chunks that it looks at.
//
// Package segment creates and adopts segments with their sidecars; a reader uses [Open].
//
// # Lifetimes
//
// The writer holds a lock on the file (flock) from [Create] or [File.Own] until
// [File.Close] or its death, and a reader one on the first byte of its slot. These locks
// are the only signs of life. A File and its slots must not be used after Close.
//
// # Faults
//
// The file can be cut short by a peer at any moment; touching what is gone is a fault.
// Methods of File and Slot touch the file first and change their own state last, so a
// caller that catches the fault finds them as before. [Open], [File.Own] and
// [File.Describes] catch it themselves.
//
// # Concurrency
//
// Any goroutine may call the methods of a File and of a Slot, but for those of the table,
// which need a lock of the writer's. [File.Lock] is a lock among readers, of this and other
// processes.
package sidecar
