package explain

import (
	"testing"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
)

// Explaining an admitted pod costs little more than planning it. Finding what would fit costs
// several plans.
func BenchmarkExplain(b *testing.B) {
	r := room(b, topology.SingleNUMANode, cpumanager.Options{})
	good, bad := pod("main cpu=2 gpu=1"), pod("main cpu=12 gpu=4")
	b.Run("plan", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Plan(good, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	plan, err := r.Plan(good, nil)
	admitted := Case{Room: r, Pod: good, Plan: plan, Err: err}
	b.Run("admitted", func(b *testing.B) {
		for b.Loop() {
			admitted.Explain()
		}
	})
	plan, err = r.Plan(bad, nil)
	rejected := Case{Room: r, Pod: bad, Plan: plan, Err: err}
	b.Run("rejected", func(b *testing.B) {
		for b.Loop() {
			rejected.Explain()
			rejected.WouldFit()
		}
	})
}
