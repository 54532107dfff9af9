package devices

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/failure"
)

// A plugin's device says since when it is unhealthy, and what becomes of each container that has it.
func TestFailures(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rows := []Row{{Resource: gpu, ID: "a"}, {Resource: nic, ID: "a"}}
	addFailures(rows, allocation.State{Pods: map[types.UID]allocation.Pod{"u": {Namespace: "ns", Name: "p"}}},
		map[failure.Device]failure.Outlook{
			{Pod: "u", Container: "main", Resource: gpu, ID: "a"}: {Since: since, Action: failure.FailPod,
				Due: since.Add(time.Minute)},
			{Pod: "u", Container: "init", Resource: gpu, ID: "a"}:              {Since: since, Action: failure.None},
			{Pod: "gone", Container: "main", Resource: gpu, ID: "a"}:           {Since: since},
			{Pod: "u", Container: "main", Resource: nic, ID: "a", Driver: "d"}: {Since: since},
		})
	got, err := json.Marshal(rows)
	const want = `[{"resource":"example.com/gpu","id":"a","health":"","failures":[` +
		`{"container":"ns/p/init","since":"2026-01-02T03:04:05Z","action":"none"},` +
		`{"container":"ns/p/main","since":"2026-01-02T03:04:05Z","action":"fail-pod",` +
		`"due":"2026-01-02T03:05:05Z"}]},{"resource":"example.com/nic","id":"a","health":""}]`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}
