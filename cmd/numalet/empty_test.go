package main

import (
	"bytes"
	"testing"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
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
		out.String() != "No device plugin has told of any device.\n" {
		t.Errorf("devices: %v, %q", err, &out)
	}
	out.Reset()
	f := podResourcesFlags{}
	if err := f.print(&out, &podresourcesv1.ListPodResourcesResponse{}); err != nil ||
		out.String() != "No pod has anything of the node.\n" {
		t.Errorf("podresources: %v, %q", err, &out)
	}
}
