package cluster_test

import (
	"fmt"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// claimsOnHollow are pods with a GPU each by claim.
const claimsOnHollow = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: claims}
spec:
  replicas: 4
  selector: {matchLabels: {app: claims}}
  template:
    metadata: {labels: {app: claims}}
    spec:
      nodeSelector: {hollow: "yes"}
      tolerations: [{key: hollow, operator: Exists}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
      containers:
      - {name: main, image: sim.local/app, resources: {claims: [{name: gpu}]}}
`

// TestHollowClaims: the scheduler gives pods the devices of hollow nodes by claim, each once, and the
// slices of removed nodes are gone.
func TestHollowClaims(t *testing.T) {
	c := rig.Start(t)
	h := startHollow(t, c, filepath.Join(t.TempDir(), "root"), "--dra", "--device=example.com/gpu=2",
		"--machine=fixture:playground=2", "--name-prefix=claims-")
	c.Apply(claimsOnHollow)
	t.Cleanup(func() { c.MustRun("delete", "deviceclass", "gpu.example.com") })
	eventually(t, c, "4", "get", "deployment", "claims", "-o", "jsonpath={.status.readyReplicas}")
	list, err := c.Client.ResourceV1().ResourceClaims(c.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, claim := range list.Items {
		for _, r := range claim.Status.Allocation.Devices.Results {
			given[r.Pool+"/"+r.Device] = true
		}
	}
	if len(given) != 4 {
		t.Errorf("given are %v", given)
	}
	h.end()
	harness.Eventually(t, "the slices are gone", func() error {
		left, err := c.Client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{
			FieldSelector: "spec.driver=gpu.example.com"})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are there", len(left.Items))
		}
		return err
	})
}
