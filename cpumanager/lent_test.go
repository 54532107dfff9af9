package cpumanager

import (
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// TestLending: lent CPUs are in no pool, and are nobody else's either.
func TestLending(t *testing.T) {
	m := machineOf(t, 8)
	s, err := NewStatic(m, cpuset.New(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	lent, err := s.Lending(cpuset.New(4, 5, 6, 7))
	if err != nil {
		t.Fatal(err)
	}
	none := cpuset.New()
	for what, got := range map[string]cpuset.CPUSet{
		"1-3": lent.Free(none), "0-3": lent.Shared(none), "4-7": lent.Lent(),
		"0-7": lent.KubeletDefault(none),
	} {
		if got.String() != what {
			t.Errorf("got %s, want %s", got, what)
		}
	}
	if all := lent.On(m); !all.Lent().Equals(lent.Lent()) || all.Free(none).String() != "1-3" {
		t.Errorf("on the same machine: %v", all.partition)
	}
	for _, c := range []struct {
		cpus, taken cpuset.CPUSet
		want        string
	}{
		{cpuset.New(4, 7), none, ""},
		{cpuset.New(4), cpuset.New(4), "CPUs 4, which another container has exclusively"},
		{cpuset.New(3, 4), cpuset.New(7), `CPUs 3, which --dra-cpus does not give`},
	} {
		err := lent.CheckLent(c.cpus, c.taken)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.cpus, err)
		}
	}
	for want, cpus := range map[string]cpuset.CPUSet{
		"reserved for the system too": cpuset.New(0, 1), "the machine has no cpus \"9\"": cpuset.New(9),
		"is left to share": cpuset.New(1, 2, 3, 4, 5, 6, 7),
	} {
		by := s
		if strings.Contains(want, "share") {
			strict, err := NewStatic(m, cpuset.New(0), Options{StrictReservation: true})
			if err != nil {
				t.Fatal(err)
			}
			by = strict
		}
		if _, err := by.Lending(cpus); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", cpus, err)
		}
	}
	isolating, err := s.Isolating(cpuset.New(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := isolating.Lending(cpuset.New(2, 3)); err == nil || !strings.Contains(err.Error(), "isolated too") {
		t.Errorf("isolated CPUs are lent: %v", err)
	}
}

func machineOf(t *testing.T, cpus int) *topology.Machine {
	t.Helper()
	return topologytest.Machine(t, []topology.Node{{ID: 0}}, cpus)
}
