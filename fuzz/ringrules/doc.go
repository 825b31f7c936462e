// Package ringrules is what package ringtest checks, for programs, which do not link package testing: what
// holds for any correct ring, wherever it places chunks. For a test in Go, use ringtest.
package ringrules
