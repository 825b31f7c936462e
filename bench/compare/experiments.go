package main

import (
	"strings"

	"github.com/ringcache/ringcache/tier/disk"
)

// experiment is a job with its cases and peers.
type experiment struct {
	name  string
	about string // a sentence above its table
	axis  string // what its plots go over: "size", "live" or "goroutines"
	each  bool   // times are of single operations, so that there are distributions of them
	rate  bool   // bytes per second are of interest
	// rounds bounds the rounds, slow multiplies the time of a round: for what takes long by itself.
	rounds, slow int
	cases        func(o options) []Case
	peers        []maker
}

// maker makes the job of one peer. at, if not nil, reports whether the peer has a part in a case.
type maker struct {
	make func(*environment) Job
	at   func(Case) bool
}

func ours(job func() Job) maker { return maker{make: func(*environment) Job { return job() }} }

// jobs returns the jobs of a case.
func (e *experiment) jobs(env *environment, c Case) (all []Job) {
	for _, p := range e.peers {
		if p.at == nil || p.at(c) {
			all = append(all, p.make(env))
		}
	}
	return all
}

var experiments = []experiment{
	{
		name: "new", axis: "size", about: "A request with a new image, up to the bytes that the engine gets.",
		cases: sized("new", sizes, "warm", "cold"),
		peers: []maker{inPython("vLLM"), ours(ourNew(oursPool)), ours(ourNew(oursFIFO)), ours(bareCopy)},
	},
	{
		name: "repeat", axis: "size", about: "A request with an image that is there, up to the bytes that the engine gets.",
		cases: func(o options) []Case { return withLive(sized("repeat", few, "warm")(o), 4) },
		peers: []maker{inPython("vLLM"), ours(ourRepeat(oursPool)), ours(ourRepeat(oursFIFO)), ours(bareSign)},
	},
	{
		name: "worker", axis: "size", about: "A worker: from the bytes of an address item to the first byte of each tensor, counted.",
		cases: sized("worker", sizes, "warm"),
		peers: []maker{inPython("vLLM"), ours(ourWorker(oursFirst)), ours(ourWorker(oursSeen)), pythonReader()},
	},
	{
		name: "reserve", axis: "size", each: true,
		about: "Reserve and Commit without a copy, every one of which evicts.",
		cases: sized("reserve", sizes, "warm", "cold"),
		peers: []maker{ours(ourReserve(oursPool)), ours(ourReserve(oursFIFO)), ours(bareReserve(true)),
			ours(bareReserve(false))},
	},
	{
		name: "transaction", axis: "size", about: "A frontend's transaction on an image that is there, beside the store's own and vLLM's.",
		cases: func(o options) []Case { return withLive(sized("transaction", few[:1], "warm")(o), 4) },
		peers: []maker{inPython("vLLM"), ours(ourTransaction), ours(ourRepeat(oursPool))},
	},
	{
		name: "live-put", axis: "live", about: "A put of 256 bytes that evicts, in a store with so many live objects.",
		cases: living("live-put"), rounds: 10,
		peers: []maker{pythonAt("vLLM", atMostLive(100_000)), ours(ourLive((*liveJob).put))},
	},
	{
		name: "live-hit", axis: "live", about: "A look-up at random among so many live objects: a request with Begin, Lookup, Commit and Finish.",
		cases: living("live-hit"), rounds: 10,
		peers: []maker{pythonAt("vLLM", atMostLive(100_000)), ours(ourLive((*liveJob).look)), ours(bareMap)},
	},
	{
		name: "live-refused", axis: "live", about: "A put that is refused, since requests need all of so many objects.",
		cases: living("live-refused"), rounds: 10, peers: []maker{ours(ourLive((*liveJob).refused))},
	},
	{
		name: "live-stats", axis: "live", about: "Statistics of a store with so many objects.",
		cases: living("live-stats"), rounds: 10, peers: []maker{ours(ourLive((*liveJob).stats))},
	},
	{
		name: "goroutines", axis: "goroutines",
		about: "Puts of new objects by several goroutines: the time of all by the number of objects.",
		cases: parallel("goroutines", 4*kib, 64*kib, mib), peers: []maker{ours(ourParallel(false)), ours(parallelCopy)},
	},
	{
		name: "goroutines-hit", axis: "goroutines",
		about: "Look-ups by several goroutines: the time of all by the number of look-ups.",
		cases: parallel("goroutines-hit", 4*kib), peers: []maker{ours(ourParallel(true))},
	},
	{
		name: "hash", axis: "size", about: "The key of an image from the bytes of its file.",
		cases: sized("hash", []int{64 * kib, 3 * mib}, ""), peers: []maker{inPython("vLLM"), ours(ourHash)},
	},
	{
		name: "prefault", axis: "size", each: true, rounds: 3, slow: 1,
		about: "Mapping all pages of a segment that was just made.",
		cases: func(o options) []Case { return []Case{{Job: "prefault", Size: o.Prefault * mib}} },
		peers: []maker{
			ours(prefaulting("ringcache", prepare)), ours(prefaulting("a goroutine that writes to every page", touch)),
			ours(prefaulting("one thread that populates", populate)),
		},
	},
	{
		name: "delivery", axis: "size", each: true, slow: 5,
		about: "From the commit of an object to the first byte that a worker in Python reads.",
		cases: sized("delivery", few, "warm"), peers: []maker{sendVLLM("shm", "vLLM"), deliver(), ours(futexTrip)},
	},
	{
		name: "way", axis: "size", each: true, slow: 5,
		about: "From the bytes in the sender to the first byte that the receiver reads.",
		cases: sized("way", sizes, "warm"),
		peers: []maker{
			sendVLLM("shm", "vLLM"), sendVLLM("direct", "vLLM, msgpack over ZMQ"),
			sendVLLM("queue", "multiprocessing queue"),
			deliver(), overSocket(), overRedis(), ours(overShmipc),
		},
	},
	{
		name: "encoder-save", axis: "size", each: true, rate: true, slow: 6,
		about: "An output of an encoder, from memory of the caller to where others find it by its key.",
		cases: outputs("encoder-save"), peers: outputPeers(true),
	},
	{
		name: "encoder-load", axis: "size", each: true, rate: true, slow: 6,
		about: "An output of an encoder, by its key, into memory of the caller. Files are in the page cache.",
		cases: outputs("encoder-load"), peers: outputPeers(false),
	},
}

// outputPeers are vLLM's connectors, ours, and the limits. Only a save can be synced.
func outputPeers(save bool) []maker {
	all := []maker{
		connector("vLLM, files", "files", onDisk),
		connector("vLLM, files in tmpfs", "files", inMemory),
		connector("vLLM, CPU connector", "region", nil),
		outputsOf(oursMemory, ourMemory),
		outputsOf(oursDisk, ourDisk(onDisk, disk.Options{Sync: disk.SyncNever})),
		outputsOf(oursTree, ourDisk(onDisk, tree)),
		outputsOf(limitCopy, bareOutputs),
		outputsOf("limit: file", bareFiles(onDisk, false)),
		outputsOf("limit: file in tmpfs", bareFiles(inMemory, false)),
	}
	if save {
		all = append(all, outputsOf(oursSynced, ourDisk(onDisk, disk.Options{Sync: disk.SyncFile})),
			outputsOf("limit: file, fsync", bareFiles(onDisk, true)))
	}
	return all
}

func experimentNames() string {
	var names []string
	for _, e := range experiments {
		names = append(names, e.name)
	}
	return strings.Join(names, ",")
}
