// Package disk keeps the objects of package tier in a folder, one file for each object.
//
// # The folder
//
// The folder is a root. Paths on this page are relative to it.
//
//	.ringcache/lock      locked by the process that has the root open; contains format, layout and space
//	.ringcache/tmp/      files that are being written
//	.ringcache/damaged/  damaged files, for people to look at ([Options].KeepDamaged)
//	everything else      files of objects, at the paths that the [Layout] computes from keys
//
// [Open] locks a root for one process; [Options].ReadOnly opens it beside that process. The layout [Native]
// writes the key and a checksum into each file. Other layouts, such as [LMCache], are trees that other
// programs also read and write ([Options].Shared).
//
// # The life of a file
//
// Each step names what a SIGKILL at that moment leaves, and what the next Open makes of it.
//
//  1. [Level.Put] enters the object into the index as being written, and reserves its bytes. If the bytes do
//     not fit, Put first evicts other objects (step 6). Until step 4 is over, Stat and Get answer
//     tier.ErrPending. After a kill: nothing of the object is on the disk.
//  2. Put creates a file in .ringcache/tmp and writes the bytes, then the head with the checksum of the bytes;
//     small objects in one call, head first. After a kill: Open removes the temporary file. No other process
//     can be writing it, since Open has the lock.
//  3. With SyncFile or SyncFolder the file is synced. This comes before the rename, so that a name never
//     leads to a file whose bytes are not on the medium. After a kill: as in step 2.
//  4. The file is renamed to the path of its key. The rename makes it visible to all readers, complete.
//     A child is renamed after its parent of the same batch. With SyncFolder, the folders are synced after
//     that. After a kill between the rename and the return of Put: the object is there, though nobody was
//     told.
//  5. [Level.Get] opens the file by its path, compares the key in the head, and computes the checksum of the
//     bytes while it copies them. A file that is torn, truncated or flipped is a miss with tier.ErrCorrupt:
//     it is renamed to .ringcache/damaged or removed, and counted once. After a kill: the damaged file is in
//     one of the two places, or gone; the next Get finds it again.
//  6. Eviction, [Level.Delete] and damage mark the entry as being removed. From then on nobody finds the
//     object, and a Put of its key waits. The file is removed, then its folder if that is empty, and then the
//     entry is dropped. After a kill: either the file is whole and the next Open finds the object again, or
//     it is gone. An empty folder that is left, also by a kill before the rename of step 4, is removed by the
//     first search. In a shared tree one that a kill left stays, since it may be another program's.
//
// The end of a process therefore loses no object that Put has reported. A power failure may lose or tear the
// newest files under SyncNever. The checksum finds the torn ones, so this is the default for Native. Files of
// [LMCache] have no checksum, and only their length is verified; they are synced before the rename.
//
// # The index
//
// The index in memory has an entry for each file, with sizes, costs and parents, and no description of an
// object: that is read from the file. Open returns at once; a search of the folder in the background reads
// the head of each file ([Level.Indexed], [Level.WaitIndex]). Until it has ended, a key that the index lacks
// is looked for at its path, so Stat and Get find every object from the beginning. List waits for the search.
// A shared tree is searched again every minute, and there the file decides and not the index. How often objects
// were used is not kept: the order of eviction begins anew with each process.
//
// When there is no room, the level evicts the object whose loss costs least per byte, of those that have no
// children here, as package memory does. If the quota of its tenant has no room for an object, it is one of the
// tenant. Objects of a batch that is being stored keep their parents; [Level.Pin] and [Options].MinAge keep
// objects for a time. Pins are in the memory of the process, and end with it.
//
// See docs/decisions.md, "Memory and disks share the rule, and not the trees".
// See docs/decisions.md, "A quota is paid by its tenant, when it stores".
//
// # Concurrency and memory
//
// All methods may be called from any goroutine. One mutex per root guards the index, and no input or output
// happens under it: an entry that is being written or removed has a channel that is closed at the end of
// that. [Options].Workers bounds the open files.
//
// Files are read into the caller's memory and never mapped: a file that is truncated while it is read is an
// error of the read, and no SIGBUS.
//
// See docs/decisions.md, "A disk level verifies every read, and does not sync".
package disk
