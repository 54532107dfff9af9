package main

import (
	"bytes"
	"testing"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/agent/placement/devices"
)

// If there is nothing to list, the commands say so.
func TestEmptyAnswers(t *testing.T) {
	address := agentWith(t, map[string]string{"/plugins": "[]", "/drivers": "[]", "/csidrivers": "[]",
		"/claims": "[]", "/events": `{"kind": "EventList"}`})
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"plugin", "list"}, "No device plugin, no DRA driver and no CSI driver has registered.\n"},
		{[]string{"claim", "list"}, "No pod of this node uses a resource claim.\n"},
		{[]string{"events"}, "No events are remembered.\n"},
	} {
		if out, err := run(t, append(tt.args, "--server", address)...); err != nil || out != tt.want {
			t.Errorf("%v: %v, %q", tt.args, err, out)
		}
	}
	var out bytes.Buffer
	if err := printDevices(&out, nil); err != nil ||
		out.String() != "No device plugin and no driver has told of any device.\n" {
		t.Errorf("devices: %v, %q", err, &out)
	}
	rows := []devices.Row{{Resource: "a.b/gpu", ID: "0"}, {Resource: "a.b/gpu", ID: "1"}, {Resource: "a.b/nic"}}
	if got, err := ofResource(rows, "a.b/gpu"); len(got) != 2 || err != nil {
		t.Errorf("devices of a resource: %v, %v", got, err)
	}
	const others = "no device plugin or driver has told of devices of a.b/gp; there are those of a.b/gpu, a.b/nic"
	if _, err := ofResource(rows, "a.b/gp"); err == nil || err.Error() != others {
		t.Errorf("devices of no resource: %v, want %s", err, others)
	}
	out.Reset()
	f := podResourcesFlags{}
	if err := f.print(&out, &podresourcesv1.ListPodResourcesResponse{}); err != nil ||
		out.String() != "No pod has anything of the node.\n" {
		t.Errorf("podresources: %v, %q", err, &out)
	}
}
