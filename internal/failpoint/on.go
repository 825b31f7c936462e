//go:build failpoints || race

package failpoint

// Enabled reports whether this build has failpoints.
const Enabled = true
