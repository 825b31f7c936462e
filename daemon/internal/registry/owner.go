package registry

import (
	"fmt"
	"strings"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// MaxLabel is the most bytes of the label of a session.
const MaxLabel = 100

// sessionKey is what a session has in front of the IDs of its leases: those of one protocol are never
// another's.
func sessionKey(protocol, id string) string { return protocol + "/" + id }

// id returns the ID of a session in its protocol.
func (s *session) id() string {
	_, id, _ := strings.Cut(s.key, "/")
	return id
}

// ownerOf returns the owner of the leases of a session, by which the next daemon finds its process.
func ownerOf(id process.ID, label string) string { return id.String() + " " + label }

// parseOwner reads what ownerOf returned.
func parseOwner(owner string) (id process.ID, label string, err error) {
	parts := strings.SplitN(owner, " ", 3)
	if len(parts) != 3 {
		return id, "", fmt.Errorf("%q has %d words, want PID START LABEL", owner, len(parts))
	}
	id, err = process.Parse(parts[0], parts[1])
	return id, parts[2], err
}

// claimOf returns whose a lease of an earlier registry is. What no registry made is a session of its
// own, which nobody can join.
func claimOf(st tier.LeaseState) (id process.ID, session, name, label string) {
	id, label, err := parseOwner(st.Owner)
	parts := strings.SplitN(st.ID, "/", 3)
	if err != nil || len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return process.ID{}, "//" + st.ID, st.ID, st.Owner
	}
	return id, sessionKey(parts[0], parts[1]), parts[2], label
}
