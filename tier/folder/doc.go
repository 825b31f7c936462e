// Package folder keeps the objects of package tier in a folder that several hosts share: a mount of NFS, CephFS, Lustre or
// JuiceFS, or a volume of Kubernetes that many pods write. Package disk has folders of one process.
//
// # The folder
//
// Paths on this page are relative to the root, which is the folder.
//
//	.ringcache/lock      format, layout and space of the root; nobody locks it
//	.ringcache/tmp/      files that are being written, each with the name of its level
//	.ringcache/leaving/  objects that are being evicted, at the paths that they had
//	.ringcache/evictor   the lease of the level that evicts
//	.ringcache/searched  what the last search has found
//	everything else      files of objects, at the paths of a disk.Layout: the same bytes as in package disk
//
// [Open] opens a root. There is no owner and no index: a path follows from a key, and the file itself says what it has. Any number of levels
// may have a root open, on any number of hosts, under one user, with the same [Options].
//
// # What hosts see of each other
//
// A file is written under a temporary name, closed, synced if [Options].Sync says so, and then renamed: who opens its path
// finds all of it. Each read compares the key and the checksum. So whatever a host has cached of folders and files, it
// finds an object whole, or does not find it: an object that another host has just put may be a miss, and one that was
// just deleted may still be found, for as long as the mount believes its caches (for NFS acdirmax, 60 seconds if not set
// otherwise, for JuiceFS 1 second; CephFS and Lustre are coherent). Files of disk.LMCache have no checksum: they are right
// if their length is.
//
// A handle that the server no longer knows (ESTALE) is opened anew, once in a call. Names that begin with .nfs, files that
// were removed while a client had them open, are left alone.
//
// # Who evicts
//
// Every minute, and when the file system is full, one level searches the root: the one with the lease. It evicts what was
// put or read longest ago, and nothing younger than [Options].MinAge. The signal is the time of modification. [Level.Get] touches a
// file whose time is older than half of MinAge, so at most once in that time: an object stays for MinAge after it was put,
// and for half of that after it was read. Times of access would be free, but mounts with noatime, relatime and clients of
// NFS do not keep them. What evicts knows no parents: a parent, which is read whenever a child is, gets old later.
//
// Ages are differences of times that the file server has given, by a clock that is measured with a file written just now.
// A host's own clock is in no comparison, so it may be wrong. CephFS and Lustre take the times of their clients: there the
// clocks of hosts must agree to much less than MinAge. The lease is compared with no clock at all, see lease.go. What is
// being evicted goes in two steps, so that no object is lost that another host renews meanwhile, see evict.go.
//
// # A kill at each step
//
//  1. Put writes a temporary file. After a kill, the level that evicts removes it when nobody has written to it for an hour.
//  2. Put renames the file to its path. After a kill the object is there, though nobody was told.
//  3. The evicting level takes the lease. After a kill the others see it unchanged for a minute, and one takes it over.
//  4. It moves an object below leaving. After a kill the object is a miss, until the next level that evicts has looked at
//     it: it removes the object, or puts it back if it is young.
//
// # A mount that hangs
//
// A call of the file system can hang for ever, and no context ends it. So each has a goroutine of its own, which a call of
// the level abandons when its context ends or after [Options].Timeout. Bytes go through a block of 256 KiB that belongs to
// that goroutine, and never straight between the file and the caller's memory, which is the caller's again by then.
//
// The level is away then: calls fail with tier.ErrUnavailable at once, and one goroutine opens the folder anew every
// [Options].Retry until that is answered. At most [Options].Workers calls hang, and four that ask. Close returns without
// them. The process ends when the kernel lets go of its threads: at once with NFS and other file systems of the kernel; with one of
// FUSE, such as JuiceFS, when its own process answers or ends.
//
// A folder that was removed, or whose mount is gone, is away as well. It is not made again: objects would be written to the
// disk of this host.
//
// See docs/decisions.md, "A folder of several hosts is a level of its own".
package folder
