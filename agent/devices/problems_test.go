package devices

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// Each fault of a plugin is a problem of its resource; a plugin without any has none.
func TestProblems(t *testing.T) {
	got := Problems([]devicemanager.Peer{
		{Resource: "a.b/away", Problem: "not connected"},
		{Resource: "a.b/fine"},
		{Resource: "a.b/odd", Endpoint: "/plugins/odd.sock",
			Complaints: []devicemanager.Complaint{{Reason: "Odd", Message: "lists ids twice"}},
			Calls:      map[string]devicemanager.Calls{"Allocate": {LastError: "Allocate: no"}}},
	})
	if len(got) != 3 {
		t.Fatalf("problems %+v", got)
	}
	want := []source.Problem{
		{Source: PluginSource, Name: "a.b/away", Reason: "NotConnected", Message: "not connected"},
		{Source: PluginSource, Name: "a.b/odd", Reason: "Odd",
			Message: "plugin on odd.sock: lists ids twice"},
	}
	if diff := cmp.Diff(want, got[:2]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c := got[2]; c.Reason != "CallFailed" || c.Name != "a.b/odd" || c.Message == "" {
		t.Errorf("failed call %+v", c)
	}
}
