package devicemanager

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/holder"
)

// A plugin that serves Lifecycle hears of released devices; the question whether it serves is no
// release.
func TestReleased(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu, Released: true})
	if res := r.untilConnected(gpu); res.Options.Released != ReleasedWanted {
		t.Errorf("its wish is %d", res.Options.Released)
	}
	by := holder.Holder{Namespace: "team", Pod: "train", UID: "not \xff text"}
	err := r.Released(t.Context(), gpu, []string{"gpu-10", "gpu-9"}, by)
	if err != nil {
		t.Fatal(err)
	}
	state, err := plugin.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	by.UID = "not \uFFFD text"
	want := []sim.Release{{IDs: []string{"gpu-9", "gpu-10"}, By: by}}
	if diff := cmp.Diff(want, state.Released); diff != "" {
		t.Errorf("it was told, -want +got:\n%s", diff)
	}
	plugin.must(plugin.Fault(t.Context(), sim.Fault{
		RPC: sim.Released, Code: "INTERNAL", Message: "the switch is away",
	}))
	err = r.Released(t.Context(), gpu, []string{"gpu-1"}, by)
	if err == nil || !strings.Contains(err.Error(), "the switch is away") {
		t.Errorf("said %v", err)
	}
	peer := r.Peers()[0]
	if failing := strings.Join(peer.Failing(), "\n"); !peer.Released ||
		!strings.Contains(failing, "Released: ") ||
		!strings.Contains(failing, "numalet.deviceplugin.v1.Lifecycle has to answer with success") {
		t.Errorf("of the plugin is said %+v: %s", peer, failing)
	}
}

// A plugin that answers the question with a wrong error is left alone.
func TestReleasedIsNotWanted(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  sim.Config
		want ReleasedWish
	}{
		"not served": {sim.Config{Resource: gpu}, ReleasedUnwanted},
		"no plugin":  {sim.Config{Resource: nic}, ReleasedUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.plugin(tt.cfg)
			r.untilConnected(tt.cfg.Resource)
			if got := r.Inventory().WantsReleased(gpu); got != tt.want {
				t.Errorf("its wish is %d, want %d", got, tt.want)
			}
			if calls := r.Peers()[0].Calls["Released"]; calls.All != 0 {
				t.Errorf("the question counts as a call: %+v", calls)
			}
		})
	}
}
