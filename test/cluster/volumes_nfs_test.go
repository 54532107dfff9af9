package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// notingMount is a mount(8) that records mounts of type nfs, and mounts an empty file system there.
const notingMount = `#!/bin/sh
case "$*" in
"-t nfs "*) ;;
*) exec /bin/mount "$@" ;;
esac
for at; do :; done
/bin/mount -t tmpfs numalet-test "$at" && echo "$*" >>"$0.calls"
`

// TestNFS: both agents call mount(8) in the same way for exports of pods and of persistent volumes;
// containers get them alike, and they are unmounted with the pods.
func TestNFS(t *testing.T) {
	reported := map[string][]string{}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) { reported[agent] = nfsMounts(t, agent) })
	}
	want := []string{"-t nfs -o nfsvers=4.2,noatime s:/y AT", "-t nfs -o ro [fd00::1]:/x AT",
		"-t nfs -o ro s:/z AT", "asked: true",
		"claimed: false", "named: true"}
	for _, agent := range agents {
		if diff := cmp.Diff(want, reported[agent]); diff != "" {
			t.Errorf("%s: -want +got\n%s", agent, diff)
		}
	}
}

// nfsMounts returns the calls of mount(8), and which container has its export read-only.
func nfsMounts(t *testing.T, name string) (out []string) {
	c := rig.Start(t)
	agent := harness.New(t)
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	agent.Program = []string{binary}
	if name == "kubelet" {
		rig.StockKubelet(t, agent)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mount"), []byte(notingMount), 0o755); err != nil {
		t.Fatal(err)
	}
	agent.Program = append([]string{"env", "PATH=" + dir + ":" + os.Getenv("PATH")}, agent.Program...)
	n := c.Join(agent, "nfs-"+name)
	n.Start()
	c.AwaitReady(n.Name)
	for name, source := range map[string]string{
		"data": "nfs: {server: s, path: /y, readOnly: true}, mountOptions: [nfsvers=4.2, noatime]",
		"more": "nfs: {server: s, path: /z}",
	} {
		claim(c, name, "")
		bind(c, name, source)
		t.Cleanup(func() {
			c.MustRun("delete", "pv", c.Namespace+"-"+name, "--ignore-not-found", "--wait=false")
		})
	}
	for pod, volume := range map[string]string{
		"named":   "nfs: {server: 'fd00::1', path: /x, readOnly: true}",
		"claimed": "persistentVolumeClaim: {claimName: data}",
		"asked":   "persistentVolumeClaim: {claimName: more, readOnly: true}",
	} {
		c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, volumes: [{name: v, %s}], containers: [{name: %[1]s,
 image: "registry.test/work:1", volumeMounts: [{name: v, mountPath: /v}]}]}}`, pod, n.Name, volume))
		await(t, c, c.Namespace, pod, runs)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "mount.calls"))
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(` /[^ ]*$`)
	for line := range strings.Lines(string(calls)) {
		out = append(out, at.ReplaceAllString(strings.TrimSpace(line), " AT"))
	}
	for _, container := range n.Runtime.State().Containers {
		for _, m := range container.Config.Mounts {
			if m.ContainerPath == "/v" {
				out = append(out, fmt.Sprint(container.Subject.Container, ": ", m.Readonly))
			}
		}
	}
	c.MustRun("delete", "pods", "--all", "--timeout=1m")
	harness.Eventually(t, "nothing of the pods is mounted", func() error {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil && strings.Contains(string(mounts), n.Root+"/pods/") {
			err = fmt.Errorf("there is %s", mounts)
		}
		return err
	})
	slices.Sort(out)
	return out
}
