// Package segment creates, maps, adopts and removes shared memory segments: the objects
// /dev/shm/<name> in which vLLM's ring lies.
//
//   - [Create] makes a segment, and beside it a sidecar if [Options] ask for one.
//   - [Attach] maps a segment that exists, of this library or of vLLM.
//   - [Adopt] takes over a segment whose writer is gone; this needs its sidecar.
//   - [Sweep] lists segments whose writer is gone, and removes them.
//   - [Private] is a segment over memory of this process, for tests.
//
// A [Segment] gives access to the bytes ([Segment.Ring], [Segment.Secret]) and, for its
// writer, to the sidecar ([Segment.Sidecar]). Package shmring allocates chunks in the bytes;
// package objstore keeps objects in them.
//
// # Lifetimes
//
// A segment outlives the process. The mapping ends with one of five calls, which differ in
// two ways: what happens to the names, and what happens while someone holds the mapping
// ([Segment.Hold]).
//
//	names                 refused with ErrBusy while held   memory stays until the last Release
//	stay                  Close                             Leave
//	stay, marked clean    Detach
//	removed               Destroy                           Abandon
//
// [Segment.Close] and [Segment.Leave] are for readers, and for memory that belongs to
// another process. [Segment.Detach] is for a writer that another writer will follow.
// [Segment.Unlink] only removes the names. A slice of the mapping must not be touched after
// the mapping has ended. [Segment.Idle] reports when nobody holds the mapping.
//
// # Faults
//
// The file behind a mapping can be cut short by a peer at any moment; touching what is gone
// is a fault. Package objstore catches the fault, and [Segment.Explain] turns it into a
// [FaultError], which names the file.
//
// # Concurrency
//
// Any number of goroutines may use a Segment.
package segment
