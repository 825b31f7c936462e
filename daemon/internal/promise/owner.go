package promise

import (
	"fmt"
	"strings"

	"github.com/ringcache/ringcache/daemon/internal/process"
)

// MaxLabel is the most bytes of the label of a session.
const MaxLabel = 100

// ownerOf returns the owner of the leases of a session, by which the next daemon finds its process.
func ownerOf(id process.ID, session, label string) string {
	return id.String() + " " + session + " " + label
}

// parseOwner reads what ownerOf returned.
func parseOwner(owner string) (id process.ID, session, label string, err error) {
	parts := strings.SplitN(owner, " ", 4)
	if len(parts) != 4 {
		return id, "", "", fmt.Errorf("%q has %d words, want PID START SESSION LABEL", owner, len(parts))
	}
	id, err = process.Parse(parts[0], parts[1])
	return id, parts[2], parts[3], err
}

// leaseID returns the ID of a lease in the store.
func leaseID(session, name string) string { return session + "/" + name }
