package devices

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/internal/complaint"
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
	want := []complaint.Problem{
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

// A driver that is away, or whose last call failed, is a problem of its name.
func TestDriverProblems(t *testing.T) {
	at := time.Now()
	got := DriverProblems([]dra.Driver{
		{Name: "a.b", AwaySince: &at},
		{Name: "c.d", Calls: map[string]dra.Calls{"NodePrepareResources": {LastError: "no"}, "X": {}}},
		{Name: "e.f", AwaySince: &at, Instances: []dra.Instance{
			{Endpoint: "/plugins/e.sock", Problem: "refused"}}},
	})
	want := []complaint.Problem{
		{Source: DriverSource, Name: "a.b", Reason: "NotConnected", Message: "no plugin is registered"},
		{Source: DriverSource, Name: "c.d", Reason: "CallFailed", Message: "NodePrepareResources: no; " +
			"a driver has to answer for each claim that it is asked about, in time and as often as it " +
			"is asked"},
		{Source: DriverSource, Name: "e.f", Reason: "NotConnected",
			Message: "plugin on e.sock is not connected: refused"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
