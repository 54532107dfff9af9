package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/cmd/numalet/preflight"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/internal/apitest"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/topology/podspec"
)

// kubeletsNode is a node with a pod that a kubelet started on exclusive CPUs, with a device. No agent runs.
func kubeletsNode(t *testing.T) *harness.Node {
	t.Helper()
	const uid = "3b1c7c0e-5b0e-4f0e-9d55-6c1f4a0f2c11"
	n := harness.New(t)
	n.Start() // it applies the defaults to the manifest, and waits for the plugin
	n.Pod("own", strings.Replace(limited("own", "cpu: 2, memory: 1Gi, example.com/gpu: 1"),
		"metadata:\n", "metadata:\n  uid: "+uid+"\n", 1))
	pod := awaitPod(n, "own-node", func(v1.Pod) error { return nil })
	n.Kill()
	for _, name := range []string{"numalet_state", "cpu_manager_state", "memory_manager_state"} {
		if err := os.Remove(filepath.Join(n.Root, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	pod.UID, pod.Status = types.UID(uid), v1.PodStatus{}
	pod.Annotations[podspec.AnnotationHash] = uid
	delete(pod.Annotations, source.AnnotationManifest)
	answer := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{"GPU": "gpu-5"}}
	byKubelet(t, n, &pod, "37-38", answer)
	kubeletFiles(t, n, uid, "37-38", checkpoint.DevicesPerNUMA{2: {"gpu-5"}}, answer)
	return n
}

// askedPreflight runs "numalet preflight" with the node's flags and returns its report and exit code.
func askedPreflight(t *testing.T, n *harness.Node, more ...string) (preflight.Report, int) {
	t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat([]string{"preflight", "-o", "json", "--config=" + filepath.Join(n.Dir, "config.yaml")},
		n.Args, more)
	cmd := exec.Command(binary, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var report preflight.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s%s", err, out, &stderr)
	}
	return report, cmd.ProcessState.ExitCode()
}

// expect fails unless the report has a finding of that level about the subject, with the text.
func expect(t *testing.T, r preflight.Report, subject string, level preflight.Level, text string) {
	t.Helper()
	if !slices.ContainsFunc(r.Findings, func(f preflight.Finding) bool {
		return f.Subject == subject && f.Level == level && strings.Contains(f.Text, text)
	}) {
		all, _ := json.MarshalIndent(r.Findings, "", " ")
		t.Errorf("no finding %s %q with %q in\n%s", level, subject, text, all)
	}
}

// contents returns the files below a folder with what is in them.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		out[path] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPreflight: of a node that a kubelet runs it says what its pods keep, what settings do and what would
// change, and changes nothing itself.
func TestPreflight(t *testing.T) {
	t.Parallel()
	n := kubeletsNode(t)
	before, since := contents(t, n.Root), lastCall(n)
	r, code := askedPreflight(t, n, "--volume-plugin-dir=/plugins")
	if code != 0 || !r.Ready || r.Node != "node" {
		t.Errorf("exit code %d, ready %t, node %q", code, r.Ready, r.Node)
	}
	expect(t, r, "default/own-node", preflight.Same, "main: CPUs 37-38, example.com/gpu gpu-5")
	expect(t, r, "cpuManagerPolicy", preflight.Better, "without draining")
	expect(t, r, "staticPodPath", preflight.Same, "")
	expect(t, r, "--volume-plugin-dir", preflight.WithoutEffect, "FlexVolume")
	expect(t, r, "1 running", preflight.Same, "no container is started anew")
	if slices.ContainsFunc(r.CommandLine, func(word string) bool { return strings.HasPrefix(word, "--output") }) {
		t.Errorf("the agent would not have these flags: %q", r.CommandLine)
	}
	untouched(t, n, since, "")
	after := contents(t, n.Root)
	for path := range after {
		if after[path] != before[path] {
			t.Errorf("%s was %q, is %q", path, before[path], after[path])
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d files are %d", len(before), len(after))
	}
}

// TestPreflightOfTrouble: what would change or keeps the agent from starting is said, and the exit code says
// so too.
func TestPreflightOfTrouble(t *testing.T) {
	t.Parallel()
	n := kubeletsNode(t)
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "shop", "old", "u1"
	pod.Spec.NodeName = "node"
	pod.Spec.Volumes = []v1.Volume{{Name: "code", VolumeSource: v1.VolumeSource{
		FlexVolume: &v1.FlexVolumeSource{Driver: "example.com/disk"}}}}
	pod.Spec.Containers = []v1.Container{{Name: "main", Image: "app", VolumeMounts: []v1.VolumeMount{
		{Name: "code", MountPath: "/code"}}}}
	api, kubeconfig := apitest.Start(t, pod)
	request, err := http.NewRequest(http.MethodPut, api.URL+"/version",
		strings.NewReader(`{"major": "1", "minor": "35", "gitVersion": "v1.35.4"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := api.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	writeFile(t, filepath.Join(n.Root, "cpu_manager_state"), `{"policyName": "static"`)

	r, code := askedPreflight(t, n, "--kubeconfig="+kubeconfig)
	if code != 1 || r.Ready {
		t.Errorf("exit code %d, ready %t", code, r.Ready)
	}
	expect(t, r, "shop/old", preflight.Changes, "flexVolume")
	expect(t, r, "API server", preflight.Changes, "v1.35.4: a node may not be newer")
	expect(t, r, "the kubelet's files", preflight.Changes, "cpu_manager_state")
	if raw, err := os.ReadFile(filepath.Join(n.Root, "cpu_manager_state")); err != nil || len(raw) != 23 {
		t.Errorf("the kubelet's file is %q, %v", raw, err)
	}

	r, code = askedPreflight(t, n, "--topology-manager-policy=widest")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	expect(t, r, "command line and files", preflight.Blocks, "topologyManagerPolicy")
	r, _ = askedPreflight(t, n, "--container-runtime-endpoint=unix://"+filepath.Join(n.Dir, "none.sock"))
	expect(t, r, "unix://"+filepath.Join(n.Dir, "none.sock"), preflight.Blocks, "is the runtime running")
	if slices.ContainsFunc(r.Findings, func(f preflight.Finding) bool { return strings.HasSuffix(f.Subject, " running") }) {
		t.Error("without the runtime nothing is known of what runs")
	}
}
