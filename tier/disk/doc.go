// Package disk keeps the objects of package tier in a folder, one file for each.
//
// The folder is a root. [Open] locks it for one process, by a file in the folder .ringcache inside. That folder
// also has the temporary files, and those that were found damaged. A root has one [Layout]: [Native],
// with the key and a checksum in each file, or a tree that other programs read and write as well
// ([Options].Shared).
//
// A file appears under its name complete, by rename, and is verified by every [Level.Get]: a torn,
// cut or flipped file is a miss, is taken away and counted. So a file of the layout Native need not be synced for
// its bytes to be right: a power failure costs objects, the end of a process costs none. Files of [LMCache] have
// no checksum, and only their length is verified; they are synced before they appear.
//
// Open removes what killed processes left, and returns. The index is built in the background ([Level.Indexed],
// [Level.WaitIndex]). What the index has not reached yet is looked for in its place, so Stat and Get find every
// object from the beginning; List waits for the index.
//
// When there is no room the level evicts what costs least to lose, as package memory does.
//
// Files are read into the caller's memory and never mapped: a file that is cut while it is read is an error
// of the read, and no SIGBUS.
//
// See docs/decisions.md, "A disk level verifies every read, and does not sync".
package disk
