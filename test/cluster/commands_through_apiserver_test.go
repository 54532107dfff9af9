package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestCommandsThroughAPIServer: with a kubeconfig, commands that ask the agent reach it through the
// API server, for users with the right to it.
func TestCommandsThroughAPIServer(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	agent.Plugin("example.com/gpu", "--devices=4")
	agent.Settings["cpuManagerPolicy"] = "static"
	n := c.Join(agent, "from-anywhere")
	n.Start()
	eventually(t, c, "4", "get", "node", n.Name,
		"--output=jsonpath={.status.allocatable.example\\.com/gpu}")
	c.Apply(bound(n.Name, "asked", `, resources: {requests: {memory: 64Mi},
 limits: {cpu: 2, memory: 64Mi, example.com/gpu: 1}}`))
	await(t, c, c.Namespace, "asked", runs)
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	admin, stranger := filepath.Join(dir, "admin"), filepath.Join(dir, "stranger")
	for path, group := range map[string]string{admin: "system:masters", stranger: "nobody"} {
		if err := c.Kubeconfig(path, "somebody", group); err != nil {
			t.Fatal(err)
		}
	}
	manifest := filepath.Join(dir, "pod.yaml")
	if err := os.WriteFile(manifest, []byte(`{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {
 containers: [{name: c, image: i, resources: {limits: {example.com/gpu: 1}}}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"explain " + c.Namespace + "/asked":      "1 example.com/gpu",
		"events":                                 "NodeReady",
		"podresources":                           "example.com/gpu",
		"podresources --allocatable":             "example.com/gpu",
		"fit --count=max --filename " + manifest: "3 copies fit",
	} {
		args := append(strings.Fields(command), "--node="+n.Name)
		out, err := exec.Command(binary, append(args, "--kubeconfig="+admin)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, lacks %q:\n%s", command, err, want, out)
		}
		out, err = exec.Command(binary, append(args, "--kubeconfig="+stranger)...).CombinedOutput()
		const refused = `User "somebody" cannot`
		if err == nil || !strings.Contains(string(out), refused) ||
			!strings.Contains(string(out), "nodes/proxy") {
			t.Errorf("%s by who may not: %v, lacks %q:\n%s", command, err, refused, out)
		}
	}
}
