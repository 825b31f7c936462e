// Package sidecar reads and writes the file <name>.ctl beside a segment, from which another
// writer takes the segment over. The section Sidecar of docs/format.md describes every byte
// and the protection of every word; layout.go contains the same offsets as constants.
//
// A [File] consists of a mapping, and of parts that share it, each a type with the methods for it:
//
//   - what the segment is ([Options]), written once;
//   - stateRecords: the [State] of its writer: epoch, next id, number of readers, and whether the writer
//     ended by plan. [File.SetState] changes all of it in one step;
//   - table: a [Record] of each object and the writer's use word for the object.
//     [File.Put], [File.SetUse] and [File.Drop] each take effect by one store;
//     [File.Records] is for the next writer;
//   - slots: a [Slot] for each reader, which names the chunks that the reader looks at, and the marks of
//     all slots side by side, see marks.go;
//   - readersLock: a lock among readers.
//
// Package segment creates and adopts segments with their sidecars; a reader uses [Open].
//
// # Lifetimes
//
// From [Create] or [File.Own] until [File.Close] or its death, a writer holds a lock on the
// file (flock). A reader holds a lock on the first byte of its slot. Nothing but these locks
// shows that a process is alive. A File and its slots must not be used after Close.
//
// # Faults
//
// The file can be cut short by a peer at any moment; touching what is gone is a fault.
// Methods of File and Slot touch the file first and change Go state last, so a caller that
// catches the fault finds them unchanged. [Open], [File.Own] and [File.Describes] return it
// as an error.
//
// # Concurrency
//
// Any number of goroutines may call the methods of a File and of a Slot, except those of the
// table: the writer must serialize these. The state has a mutex of its own, and so has a Slot; slots have
// none, since each word of theirs is stored by one owner. [File.Lock] is a lock among readers, in this and in
// other processes.
package sidecar
