package fit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/dra/places"
	"github.com/numalet/numalet/topology"
)

const podWithClaim = `apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  resourceClaims:
  - {name: gpu, CLAIM}
  containers:
  - name: main
    image: app
    resources: {limits: {cpu: "2", memory: 1Gi, example.com/gpu: "1"}, claims: [{name: gpu}]}
`

const (
	pending   = "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: gpu-1, namespace: default}\n"
	allocated = pending + `status:
  allocation:
    devices:
      results: [{request: r, driver: gpu.example.com, pool: node, device: gpu-0}]
`
	template = `---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com, count: 2}}]}}}
`
	slice = `---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  pool: {name: node, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {at: {int: 1}, id: {string: GPU-1}}
`
)

// Allocated claims are fixed hints, places come from slices, and what is not known is told with what has
// to be done for it.
func TestClaims(t *testing.T) {
	byName := "resourceClaimName: gpu-1"
	const counts = "claim gpu counts for nothing here: "
	devices := gpus(false, 0, 1)
	devices.Resources["example.com/gpu"].Devices[1].ID = "GPU-1"
	for _, c := range []struct {
		name, claim, files string
		place              func(driver, pool, device string) claim.Place
		node, gpu          string // of what it gets
		note               string
	}{
		{name: "no claim among the files", claim: byName, node: "0", gpu: "gpu-0", note: counts +
			"ResourceClaim default/gpu-1 is not among the files; add what kubectl get resourceclaim gpu-1 -o yaml prints"},
		{name: "a claim that is not allocated", claim: byName, files: pending, node: "0", gpu: "gpu-0",
			note: counts + "ResourceClaim default/gpu-1 is not allocated; the scheduler has to choose its devices first"},
		{name: "a template", claim: "resourceClaimTemplateName: t", node: "0", gpu: "gpu-0",
			note: counts + "no ResourceClaim was made yet of its template t; "},
		{name: "a template that is among the files", claim: "resourceClaimTemplateName: t", files: template, node: "0",
			gpu: "gpu-0", note: counts + "no ResourceClaim was made yet of its template t, which asks for 2 of class " +
				"gpu.example.com and whose devices the scheduler chooses; ask about"},
		{name: "nobody knows where it is", claim: byName, files: allocated, node: "0", gpu: "gpu-0",
			note: "where device gpu.example.com/node/gpu-0 of ResourceClaim gpu-1 is, is not known; add its ResourceSlice"},
		{name: "on node 1 by its slice, and the plugin's device", claim: byName, files: allocated + slice, node: "1",
			note: "reject"},
		{name: "by the node's slices", claim: byName, files: allocated, node: "0", gpu: "gpu-0",
			place: func(string, string, string) claim.Place { return claim.Place{UUID: "GPU-1"} }},
		{name: "on node 1", claim: byName, files: allocated, node: "1", gpu: "GPU-1",
			place: func(string, string, string) claim.Place { return claim.Place{Nodes: topology.NewNodeSet(1)} }},
	} {
		m, err := manifest.Read([]byte(strings.Replace(podWithClaim, "CLAIM", c.claim, 1)+c.files), true, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		s := offline(t, devices, allocation.State{}, "--topology-manager-policy=single-numa-node")
		table := places.Default().With(places.Table{"gpu.example.com/at": places.Node, "gpu.example.com/id": places.UUID})
		got := place(t, s, fit.Question{Pods: m.Pods, Copies: 1,
			Claims: fit.NewClaims(m, table, s.View.Hardware.Machine, c.place)}).Pods[0]
		if c.note == "reject" {
			if !strings.Contains(got.Record.Message, "claim gpu has devices on NUMA node 1") ||
				!strings.Contains(got.Record.Message, "both have the UUID GPU-1") {
				t.Errorf("%s: %s", c.name, got.Text)
			}
			continue
		}
		if c.note == "" != (len(got.Notes) == 0) || c.note != "" && !strings.HasPrefix(got.Notes[0], c.note) {
			t.Errorf("%s: notes %q, want %q", c.name, got.Notes, c.note)
		}
		if len(got.Containers) != 1 || got.Containers[0].NUMANodes != c.node ||
			!slices.Equal(got.Containers[0].Devices["example.com/gpu"], []string{c.gpu}) {
			t.Errorf("%s: %s", c.name, got.Text)
		}
	}
}
