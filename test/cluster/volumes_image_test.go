package cluster_test

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/test/cluster/rig"
)

// TestImageVolumes: the runtime mounts an image that was pulled before, or a path in it, read-only.
// A container waits for the image as for its own.
func TestImageVolumes(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		pod := func(name, image string) {
			c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s,
 annotations: {example.com/a: b}}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, volumes: [{name: data, image: %s}],
 containers: [{name: main, image: "registry.test/work:1", volumeMounts: [
  {name: data, mountPath: /all}, {name: data, mountPath: /part, subPath: some/path}]}]}}`,
				name, n.Name, image))
		}
		pod("never", `{reference: "registry.test/none:1", pullPolicy: Never}`)
		await(t, c, c.Namespace, "never", neverPulled)
		pod("has", `{reference: "registry.test/data:1"}`)
		await(t, c, c.Namespace, "has", runs)
		container, _ := n.Runtime.State().Container("has", "main")
		mounts := map[string]*runtimeapi.Mount{}
		for _, m := range container.Config.GetMounts() {
			mounts[m.GetContainerPath()] = m
		}
		for at, path := range map[string]string{"/all": "", "/part": "some/path"} {
			m := mounts[at]
			if m.GetImage().GetImage() == "" || m.GetHostPath() != "" || !m.GetReadonly() ||
				m.GetImageSubPath() != path || m.GetImage().GetAnnotations()["example.com/a"] != "b" ||
				m.GetImage().GetUserSpecifiedImage() != "registry.test/data:1" {
				t.Errorf("%s is mounted as %v", at, m)
			}
		}
		if got := n.Runtime.State().Calls["PullImage"]; got != 2 {
			t.Errorf("%d pulls, want one for the container and one for the volume", got)
		}
	})
}
