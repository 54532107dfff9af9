package rig

import (
	"strings"
	"testing"
)

const pairsMix = `name: pairs
load: 0.9
templates:
- name: one
  weight: 3
  lifetime: {mean: 1h}
  containers:
  - limits: {cpu: 4, memory: 8Gi, gpu: 1, example.com/nic: 1}
- name: two
  weight: 1
  lifetime: {mean: 1h}
  containers:
  - limits: {cpu: 8, memory: 16Gi, gpu: 2, example.com/nic: 2}
`

// On a DGX each GPU gets the network card under its switch, and by ids most do not; the pods admitted
// are the same.
func TestPairsOnDGX(t *testing.T) {
	s := site(t, "dgx-h100")
	mix, err := ParseMix([]byte(pairsMix))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.Generate(mix, Draw{Pods: 500, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"none", "single-numa-node"} {
		var got [2]Outcome
		for i, word := range []string{"devices-near", "devices-by-id"} {
			if got[i], err = Run(t.Context(), s, policies(t, of+"+"+word)[0], stream, Options{}); err != nil {
				t.Fatal(err)
			}
		}
		near, byID := got[0].Placement, got[1].Placement
		if near.Pairs == 0 || near.SwitchPairs != near.Pairs || byID.SwitchPairs*3 > byID.Pairs*2 ||
			near.Pairs != byID.Pairs || got[0].Pods != got[1].Pods {
			t.Errorf("%s: %d of %d pairs, and %d of %d by ids", of, near.SwitchPairs, near.Pairs,
				byID.SwitchPairs, byID.Pairs)
		}
	}
	if !strings.Contains(strings.Join(PolicyWords(), " "), "devices-by-id") {
		t.Error("the words lack devices-by-id")
	}
}
