package rig

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/numalet/numalet/topology/topologytest"
)

func site(t testing.TB, machine string, devices ...string) *Site {
	t.Helper()
	m := topologytest.Fixture(t, machine)
	s, err := NewSite(SiteConfig{Machine: m, Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func drawn(t testing.TB, s *Site, mix string, d Draw) Stream {
	t.Helper()
	m, err := OpenMix(mix)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.Generate(m, d)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func policies(t testing.TB, text string) []Policy {
	t.Helper()
	out, err := ParsePolicies(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// poolPolicies have pods with pools, of CPUs and memory or only of one of these.
const poolPolicies = ",pools+pod+best-effort/single-numa-node+memory-none/memory-static,pools+restricted," +
	"pools+pod+restricted+cpu-none+memory-static,pools+pod+restricted+full-pcpus-only+strict-cpu-reservation"

// The counts that Run keeps equal a plain count over its decisions.
func TestOutcomeIsWhatDecisionsAddUpTo(t *testing.T) {
	for _, test := range []struct {
		machine, mix string
		devices      []string
		wait         time.Duration
		load         float64
		policies     string // beside the others
	}{
		{machine: "playground", mix: "training"},
		{machine: "playground", mix: "training", wait: 2 * time.Hour},
		{machine: "playground", mix: "inference", wait: time.Hour, load: 1.5},
		{machine: "epyc-nps4", mix: "small-and-large"},
		{machine: "sparse-offline", mix: "cpu-only", load: 2},
		{machine: "cpuless-memory", mix: "inference", devices: []string{"gpu=3", "gpu=4@1,3"}},
		{machine: "eight-node", mix: "training", wait: time.Hour},
		{machine: "playground", mix: "pooled", policies: ",pools+pod+restricted"},
		{machine: "playground", mix: "testdata/pools.yaml", policies: poolPolicies, wait: time.Hour},
		{machine: "eight-node", mix: "testdata/pools.yaml", policies: poolPolicies, devices: []string{"gpu=2"}},
	} {
		t.Run(test.machine+" "+test.mix, func(t *testing.T) {
			s := site(t, test.machine, test.devices...)
			stream := drawn(t, s, test.mix, Draw{Pods: 200, Seed: 7, Load: test.load})
			for _, p := range policies(t,
				"none/best-effort/restricted/single-numa-node+container/pod,"+
					"restricted+prefer-closest-numa-nodes+full-pcpus-only+strict-cpu-reservation,"+
					"cpu-none,memory-static+none/restricted/single-numa-node+container/pod,"+
					"cpu-none+memory-static"+test.policies) {
				check(t, recount{site: s, policy: p, stream: stream}, test.wait)
			}
		})
	}
}

func check(t *testing.T, c recount, wait time.Duration) {
	t.Helper()
	got, err := Run(t.Context(), c.site, c.policy, c.stream, Options{
		Wait: wait, Follow: func(d Decision) error { c.list = append(c.list, d); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(c.list, func(a, b Decision) int { return int(a.At - b.At) }) {
		t.Errorf("%s: decisions are not in the order of time", c.policy.Name)
	}
	for _, r := range got.Resources {
		if r.Resource == "memory" && (r.Fragmentation != nil) != c.policy.PlacedMemory {
			t.Errorf("%s: fragmentation of memory %v", c.policy.Name, r.Fragmentation)
		}
		if r.Resource == "memory" && r.Fragmentation != nil {
			if want := c.memoryFragmentation(); math.Abs(*r.Fragmentation-want) > 2e-4 {
				t.Errorf("%s: fragmentation of memory %v, want %v",
					c.policy.Name, *r.Fragmentation, want)
			}
		}
		used, fragmentation := c.averages(r.Resource)
		if math.Abs(used-r.Used) > 2e-4 {
			t.Errorf("%s: %s used %v, want %v", c.policy.Name, r.Resource, r.Used, used)
		}
		if r.Resource == "cpu" && r.Fragmentation != nil &&
			math.Abs(*r.Fragmentation-fragmentation) > 2e-4 {
			t.Errorf("%s: fragmentation %v, want %v",
				c.policy.Name, *r.Fragmentation, fragmentation)
		}
	}
	want := c.outcome()
	want.Resources, want.Series, want.Settings = got.Resources, got.Series, got.Settings
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot  %s\nwant %s", c.policy.Name, asJSON(got), asJSON(want))
	}
	if got.Pods.Arrived != got.Pods.Admitted+got.Pods.Rejected+got.Pods.Waiting {
		t.Errorf("%s: the counts of pods do not add up: %+v", c.policy.Name, got.Pods)
	}
	if wait == 0 && (got.Pods.Waiting > 0 || got.Pods.Waited > 0) {
		t.Errorf("%s: pods waited: %+v", c.policy.Name, got.Pods)
	}
}

func asJSON(o Outcome) string {
	o.Series.Lines, o.Resources = nil, nil
	raw, err := json.Marshal(o)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(raw)
}

// The same seed gives the same bytes, another seed gives others.
func TestSameSeedSameOutcome(t *testing.T) {
	s := site(t, "playground")
	run := func(seed uint64) string {
		stream := drawn(t, s, "training", Draw{Pods: 500, Seed: seed})
		o, err := Run(t.Context(), s, policies(t, "best-effort")[0], stream,
			Options{Wait: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if first, again := run(1), run(1); first != again {
		t.Error("the same seed gave two outcomes")
	}
	if run(1) == run(2) {
		t.Error("two seeds gave the same outcome")
	}
}
