package pods

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/shutdown"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/deviceplugin/failure"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// What an earlier run was about to end is ended for the reason that it had: an eviction before a shutdown, and
// that before a failed device. Other pods, and those whose end is known, are not.
func TestKilled(t *testing.T) {
	root, until := t.TempDir(), time.Now().Add(time.Hour).Format(time.RFC3339)
	for name, text := range map[string]string{
		eviction.JournalFile: `[{"uid": "evicted", "message": "low on memory", "ownLimit": true, "until": "` + until + `"}]`,
		shutdown.MarksFile: `{"bootID": "boot", "pods": [{"uid": "evicted", "until": "` + until +
			`"}, {"uid": "down", "until": "` + until + `"}]}`,
		health.FailuresFile: `[{"pod": "down", "action": "fail-pod", "until": "` + until + `"},
 {"pod": "failed", "action": "fail-pod", "message": "a GPU is gone", "until": "` + until + `"}]`,
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := &node.Host{}
	c := HostConfig{Placement: &placement.Placement{Config: placement.Config{Host: h}}}
	var err error
	if h.Evicted, err = eviction.OpenJournal(root); err != nil {
		t.Fatal(err)
	}
	if h.Marks, err = shutdown.OpenMarks(root, "boot"); err != nil {
		t.Fatal(err)
	}
	if c.Failures, err = health.OpenFailures(root, failure.Rules{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]pod.Why{
		"evicted": {Reason: eviction.ReasonEvicted, Message: "low on memory", OwnLimit: true},
		"down":    {Reason: podspec.ReasonShutdown, Message: shutdown.Message},
		"failed":  {Reason: podspec.ReasonDeviceFailed, Message: "a GPU is gone"},
	} {
		why, grace, ok := c.killed(podtest.New(name))
		if why != want || !ok || grace.Round(time.Minute) != time.Hour {
			t.Errorf("%s ends within %v, %v: %+v; want %+v", name, grace, ok, why, want)
		}
		if _, _, ok := c.killed(podtest.New(name, podtest.Phase(v1.PodFailed))); ok {
			t.Errorf("%s has ended, and ends", name)
		}
	}
	if _, _, ok := c.killed(podtest.New("other")); ok {
		t.Error("a pod ends that nothing was about to end")
	}
}
