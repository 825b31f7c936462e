package memory

import (
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmstore"
)

// recordOf returns a reserved chunk as the table of leases keeps it, and chunkOf the reverse.
func recordOf(c shmstore.ReservedChunk) sidecar.Record {
	return sidecar.Record{
		Address: c.Address, ID: c.ID, Size: c.Size,
		DescriptionOffset: c.DescriptionOffset, DescriptionLength: c.DescriptionLength, Sum: c.Sum,
	}
}

func chunkOf(r sidecar.Record) shmstore.ReservedChunk {
	return shmstore.ReservedChunk{
		Address: r.Address, ID: r.ID, Size: r.Size,
		DescriptionOffset: r.DescriptionOffset, DescriptionLength: r.DescriptionLength, Sum: r.Sum,
	}
}
