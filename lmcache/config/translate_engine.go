package config

import (
	"cmp"

	"github.com/ringcache/ringcache/kv"
)

func (t translator) localCPU(s Setting) string {
	if s.Value != true {
		t.warn("local_cpu is off: LMCache's memory is a buffer then, and here it is always a level")
	}
	return "memory is always a level"
}

func (t translator) disk(s Setting) string {
	folders, _ := s.Value.(string)
	all := fields(folders)
	if len(all) == 0 {
		return "no disk"
	}
	if f, ok := t.c.at("max_local_disk_size").Value.(float64); !ok || f <= 0 {
		t.warn(
			"local_disk is set, and max_local_disk_size is not: LMCache has no disk then, without a word, " +
				"and the daemon gets none")
		return "no disk, since max_local_disk_size is not set"
	}
	if len(all) > 1 {
		t.warn(
			"local_disk has %d folders, and the daemon has one: the first is taken; "+
				"for several disks make one file system of them",
			len(all))
	}
	return t.folder(all[0], "local_disk")
}

func (t translator) diskSize(s Setting) string {
	if !t.has("disk") {
		return "no disk"
	}
	if text, ok := size(s.Value, 1); ok {
		return t.set("disk-size", text)
	}
	return "no bound but the disk's"
}

func (t translator) remote(s Setting) string {
	u, ok := s.Value.(string)
	if !ok {
		return "no remote level"
	}
	return t.url(u, s.Name)
}

func (t translator) serde(s Setting) string {
	if s.Value != "naive" && s.Value != nil {
		t.warn("remote_serde is %s: KV is not compressed here, and takes its whole size", shown(s.Option, s.Value))
	}
	return "KV is kept as engines give it"
}

func (t translator) tail(s Setting) string {
	if s.Value == true {
		t.warn(
			"save_unfull_chunk is on: here only whole chunks are kept, and the tokens behind the last one " +
				"are computed again; a smaller chunk_size makes them fewer")
	}
	return "whole chunks only"
}

// hashes warns of what an engine's own hashes cost.
func (t translator) hashes() {
	name, _ := t.c.at("pre_caching_hash_algorithm").Value.(string)
	algorithm := kv.Algorithm(name)
	switch name {
	case "sha256_cbor_64bit":
		algorithm = kv.SHA256CBOR
	case "sha256", "xxhash":
		t.warn(
			"pre_caching_hash_algorithm %s hashes pickles, which differ between releases of Python: "+
				"engines with other ones find nothing of each other; use %s",
			name, kv.SHA256CBOR)
	case string(kv.Builtin), string(kv.SHA256CBOR), string(kv.XXHashCBOR):
	default:
		t.warn(
			"pre_caching_hash_algorithm %q is none of vLLM's: LMCache takes %s in its place, "+
				"with a line in the log alone",
			name, kv.Builtin)
		algorithm = kv.Builtin
	}
	if t.e.BlockHash != "" && t.e.BlockHash != name {
		t.warn(
			"vLLM hashes its blocks with %s, and LMCache its chunks with %s: "+
				"who compares both, such as a router, finds no hit; set both to %s",
			t.e.BlockHash, name, kv.SHA256CBOR)
	}
	seed, set := t.c.environ["PYTHONHASHSEED"]
	err := kv.Scheme{Algorithm: algorithm, Seed: seed, Legacy: true}.Validate()
	switch {
	case name == "sha256" || name == "xxhash":
	case !t.c.known:
		t.warn(
			"the environment of the engines is not known: "+
				"with pre_caching_hash_algorithm %s they find nothing of each other's "+
				"unless PYTHONHASHSEED is one number for all",
			cmp.Or(name, string(algorithm)))
	case err != nil && set:
		t.warn(
			"PYTHONHASHSEED is %q, and %s needs a number up to 4294967295: engines find nothing of each other's",
			short(seed), algorithm)
	case err != nil:
		t.warn(
			"PYTHONHASHSEED is not set, and %s is random in each process then: "+
				"an engine finds nothing of another one's, and after a restart nothing of its own; "+
				"set it to one number for all",
			algorithm)
	case !set:
		t.warn(
			"PYTHONHASHSEED is not set: vLLM 0.16.0 and older seed %s at random then, "+
				"so that engines find nothing of each other's; 0.31.0 has a seed of its own",
			algorithm)
	}
}
