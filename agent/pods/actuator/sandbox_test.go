package actuator

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/podtest"
)

// A failure before the call for a sandbox makes an event with the same text as the status.
func TestSandboxThatIsNotOrdered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: ptr.To(true),
		Hostname: strings.Repeat("h", 60)}
	for _, tc := range []struct {
		logs string
		spec v1.PodSpec
		want string
	}{
		{t.TempDir(), long, "failed to construct FQDN from pod hostname and cluster domain, FQDN " +
			long.Hostname + ".sub.ns.svc.cluster.local is too long (64 characters is the max, " +
			"85 characters requested)"},
		{file, v1.PodSpec{}, "mkdir " + file + ": not a directory"},
	} {
		var events []string
		a := New(Config{Tell: Tell{Event: func(_ *v1.Pod, kind, reason, message string) {
			events = append(events, kind+" "+reason+" "+message)
		}}, Node: Node{Logs: logfiles.Place{Dir: tc.logs}, ClusterDomain: "cluster.local"}})
		pod := podtest.New("ns/web", podtest.UID("u"), podtest.Spec(tc.spec))
		_, err := build{Actuator: a, pod: pod, node: a.cfg.Node,
			say: about{pod, a.cfg.Tell, t.Context().Err}}.runSandbox(t.Context(), 0, "")
		want := "Warning FailedCreatePodSandBox Failed to create pod sandbox: " + tc.want
		if err == nil || len(events) != 1 || events[0] != want {
			t.Errorf("got %v and the events %q, want %q", err, events, want)
		}
		var why *cri.StartError
		if tc.spec.Subdomain != "" && (!errors.As(err, &why) || why.Message != tc.want) {
			t.Errorf("the status says %v", err)
		}
	}
}
