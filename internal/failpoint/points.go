package failpoint

// Points are all failpoints of this module, by what a process was doing.
var Points = []Point{
	// A pool's writer makes an object.
	{"pool.alloc", "a bound on the ids is in the state; nothing of the new object is there"},
	{"pool.allocated", "the chunk has its room, or there was none; its header has the gone id"},
	{"reserve.copy", "the reservation is made; none of its payload is written"},
	{"reserve.copy.meta", "the description is written, the padding behind it is not"},
	{"reserve.copied", "count, metadata and data are written"},
	{"commit", "Commit was called; nothing is published"},
	{"pool.publish", "the object is complete; it has no entry in the table"},
	{"pool.published", "the entry is valid and the id is in the header; the key is not in the index"},
	{"committed", "the object has its key; the caller does not have the handle"},

	// A pool's writer lets objects go.
	{"pool.evict.killed", "a chunk has the dead id; nobody has looked who holds it"},
	{"pool.drop", "the chunk is dead and its entry free; its room is not free"},
	{"pool.clear.begin", "Clear was called; nothing is gone"},
	{"pool.clear.one", "an object has lost its key, others have theirs"},
	{"pool.clear.end", "all that nobody needs is gone"},

	// The words of the sidecar.
	{"sidecar.put.begin", "an entry of the table is free"},
	{"sidecar.put.half", "address, id and size are in the entry; the mark is that of a free one"},
	{"sidecar.put.summed", "the entry is complete; the mark is that of a free one"},
	{"sidecar.put.end", "the mark is valid; the header has the gone id"},
	{"sidecar.drop.begin", "the entry is valid; its chunk is dead"},
	{"sidecar.drop.end", "the mark is that of a free entry"},
	{"sidecar.use.begin", "the use word is the old one"},
	{"sidecar.use.end", "the use word is the new one"},
	{"sidecar.state.begin", "both state records are valid"},
	{"sidecar.state.half", "the older record is spoiled and partly new"},
	{"sidecar.state.end", "the new record is valid"},

	// Files come and go.
	{"sidecar.link", "the sidecar is complete and locked; it has no name"},
	{"segment.link", "the sidecar has its name; the segment has none"},
	{"segment.linked", "both have their names; nobody was told"},
	{"segment.unlinked", "the segment has no name any more; the sidecar has"},

	// A writer adopts.
	{"adopt.begin", "the lock is taken; nothing is read or changed"},
	{"adopt.verified", "all objects are compared; nothing is changed"},
	{"adopt.state", "the state is that of the new writer, without the clean mark"},
	{"adopt.dropping", "objects are restored and free room is scrubbed; bad entries are in the table"},
	{"adopt.end", "bad entries and objects that nobody needs are gone"},

	// A reader comes and goes.
	{"sidecar.slot.locked", "the reader has the lock of a slot, which has what the reader before left"},
	{"sidecar.slot.marked", "the slot is clear and has its mark"},
	{"sidecar.slot.cleared", "the slot is clear again; its mark and its lock are there"},
	{"sidecar.slot.unmarked", "the slot has no mark; its lock is there"},

	// A reader gets an object.
	{"reader.held", "the slot names the chunk; nothing of it is read"},
	{"reader.got", "the object is decoded; the read is not counted"},

	// A root of tier/disk. Its kill test is in tier/disk.
	{"disk.lock.created", "the lock file has its name; it is not locked, and may be empty"},
	{"disk.lock.taken", "the root is locked and knows its layout; temporary files of the dead are there"},
	{"disk.swept", "a temporary file of the dead is gone, others may be there"},
	{"disk.temp.created", "a temporary file is there, and empty"},
	{"disk.temp.block", "a block of an object is in the temporary file, which has no head"},
	{"disk.temp.written", "the temporary file is complete"},
	{"disk.renamed", "the file has its place; nobody was told"},
	{"disk.evict", "an object has to go; its file is there"},
	{"disk.removed", "the file of an object that had to go is gone; the index has it"},
	{"disk.deleted", "the file of an object that was deleted is gone; nobody was told"},
	{"disk.aside", "a damaged file is in the folder of such files, which may have too many"},

	// A level of tier/folder, whose root several processes have. Its kill test is in tier/folder.
	{"folder.temp.created", "a temporary file is there, and empty"},
	{"folder.temp.block", "a block of an object is in the temporary file, which has no head"},
	{"folder.temp.written", "the temporary file is complete"},
	{"folder.renamed", "the file has its place; nobody was told"},
	{"folder.lease.taken", "the lease of the evictor was asked for, and may be there"},
	{"folder.leaving", "an object that has to go is below leaving; nobody has looked whether it was renewed"},
	{"folder.returned", "an object that was renewed is at its path again"},
	{"folder.removed", "an object that had to go is gone; others are below leaving"},
	{"folder.swept", "a temporary file of the dead is gone, others may be there"},

	// A memory level and its leases.
	{"tier.memory.created", "a segment is made; it has no table of leases"},
	{"tier.memory.adopted", "the store is adopted; no lease has anything"},
	{"tier.memory.table", "the level has its table of leases; no lease has anything"},
	{"tier.memory.restored", "leases have what they had; nobody was told"},
	{"tier.memory.pin", "the lease has the object; the table does not"},
	{"tier.memory.unpin", "the table does not have the object; the lease does"},
	{"tier.memory.reserve", "the room is taken; the table does not have it"},
	{"tier.memory.commit", "the object is published; the table has a reservation"},
	{"tier.memory.abort", "the table does not have the reservation; its room is taken"},
	{"tier.memory.release", "the record of the lease is free; those of its objects are not"},
	{"tier.lease.written", "the record of a lease is complete; its mark is that of a free one"},
	{"tier.lease.valid", "the record of a lease is valid"},
	{"tier.lease.free", "the record of a lease is free"},
	{"tier.item.written", "the record of an object is complete; its mark is that of a free one"},
	{"tier.item.valid", "the record of an object is valid"},
	{"tier.item.pinned", "the record of a reservation is that of a pin"},
	{"tier.item.free", "the record of an object is free"},

	{"daemon.lease", "a client's lease is open; it has nothing"},
	{"daemon.pinned", "a client's lease has what it asked for; nobody was told"},
	{"daemon.unpinned", "a client's lease has given pins up; nobody was told"},
	{"daemon.reserve", "one object is reserved for a client; others of the request are not"},
	{"daemon.reserved", "all objects of a request are reserved; nobody was told"},
	{"daemon.committed", "what a client committed is published, and pinned; nobody was told"},
	{"daemon.aborted", "reservations of a client are given up; nobody was told"},
	{"daemon.released", "a client's lease has ended; nobody was told"},
	{"daemon.died", "one session of a dead process has ended; others have not"},
	{"daemon.recover", "one lease of the daemon before was taken over, or released; others were not"},
	{"daemon.abandoned", "one lease that nobody came back for has ended; others have not"},
}
