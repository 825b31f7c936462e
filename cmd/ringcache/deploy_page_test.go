package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDeployPageCommands: the command takes every command line of docs/deploy.md. The chart's part of the page is tested in
// deploy/check.
func TestDeployPageCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy.md"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, parsesCommands(t, strings.ReplaceAll(string(page), " /ringcache ", " ringcache ")), 4, "the page has commands")
}
