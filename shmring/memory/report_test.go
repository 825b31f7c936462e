package memory

import (
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptionsAreValidated(t *testing.T) {
	for _, c := range []struct {
		o    Options
		text string
	}{
		{Options{Workers: -1}, "-1 workers"},
		{Options{NUMA: "spread"}, `NUMA "spread"`},
		{Options{NUMA: "Bind"}, `NUMA "Bind"`},
		{Options{NUMA: numaBind}, "no NUMA node to bind to"},
		{Options{NUMANodes: []int{0}}, "without a policy"},
		{Options{NUMA: numaBind, NUMANodes: []int{-1}}, "NUMA node -1"},
		{Options{NUMA: numaInterleave, NUMANodes: []int{0, math.MaxInt}}, "NUMA node 9223372036854775807"},
	} {
		t.Run(c.text, func(t *testing.T) {
			_, err := Prepare(t.Context(), nil, "", c.o)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestReportText(t *testing.T) {
	const plain = `memory of /dev/shm/x, 4096 bytes:
  allocated   yes
  resident    4096 of 4096 bytes
  prefault    not asked for, 0 of 4096 bytes mapped
  huge pages  not asked for, 0 of 4096 bytes
  NUMA        not asked for, no node known
  locked      not asked for, 0 of 4096 bytes
  core dumps  left out`
	r := Report{Path: "/dev/shm/x", Size: 4096, Allocated: true, Resident: 4096, DontDump: true}
	require.Equal(t, plain, r.String())
	require.Empty(t, r.Missing())

	r.Mapped, r.Prefault.Asked, r.Prefault.Obtained = 4096, true, true
	r.HugePages.Asked, r.HugePages.Reason = true, "too small"
	r.NUMA.Asked, r.NUMA.AskedNodes = numaInterleave, []int{0, 1}
	r.NUMA.Nodes, r.NUMA.Reason = map[int]int64{1: 96, 0: 4000}, "for a reason"
	r.Lock.Asked, r.Lock.Obtained, r.Lock.Reason = true, 10, "limit"
	r.DontDump, r.DontDumpReason = false, "unknown"
	r.Allocated, r.AllocatedReason = false, "holes"
	require.Equal(t, `memory of /dev/shm/x, 4096 bytes:
  allocated   no: holes
  resident    4096 of 4096 bytes
  prefault    4096 of 4096 bytes mapped
  huge pages  0 of 4096 bytes: too small
  NUMA        interleave to [0 1] not obtained, node 0 has 4000 bytes, node 1 has 96 bytes: for a reason
  locked      10 of 4096 bytes: limit
  core dumps  not left out: unknown`, r.String())
	require.Equal(t, "allocation: holes|huge pages: too small|NUMA: for a reason|lock: limit|leaving it out of core dumps: unknown",
		strings.Join(r.Missing(), "|"))
}
