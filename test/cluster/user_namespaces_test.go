package cluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// usersPod has a user namespace, and volumes of several types. Its container ends once the file
// /end exists in it.
const usersPod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  hostUsers: false
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  volumes:
  - {name: scratch, emptyDir: {}}
  - {name: cfg, configMap: {name: cfg, defaultMode: 0600}}
  - {name: token, projected: {sources: [{serviceAccountToken: {
      path: token, expirationSeconds: 600}}]}}
  containers:
  - name: main
    image: ` + containerdrig.ShellImage + `
    command: [sh, -c, "until [ -e /end ]; do sleep 0.1; done"]
    volumeMounts:
    - {name: scratch, mountPath: /scratch}
    - {name: cfg, mountPath: /cfg}
    - {name: token, mountPath: /token}
`

// TestUserNamespaces: in a pod with a user namespace root is one of ids that no other pod has;
// mounts belong to root inside, and to the host's owner on the host. The pod keeps its ids over
// restarts of container and agent, and they are free once it is gone.
func TestUserNamespaces(t *testing.T) {
	containerdrig.NewRunc(t)
	c := rig.Start(t)
	agent, d, _ := containerdrig.Node(t)
	containerdrig.ImportShell(t, d)
	n := c.Join(agent, "users")
	n.Start()
	c.AwaitReady(n.Name)
	c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: cfg}, data: {color: red}}`)
	for _, name := range []string{"a", "b"} {
		c.Apply(strings.Replace(usersPod, "NAME", name, 1))
	}
	c.MustRun("wait", "--for=condition=Ready", "pod/a", "pod/b", "--timeout=2m")
	a := userPod{t, c, n, "a"}
	first, other := a.ids(), userPod{t, c, n, "b"}.ids()
	if first == other || first%65536 != 0 || first == 0 {
		t.Errorf("the pods have ids from %d and %d on", first, other)
	}
	a.mountsAreRoots()
	n.Kill()
	n.Start()
	c.AwaitReady(n.Name)
	a.inside("touch", "/end")
	eventually(t, c, "1 true", "get", "pod", "a", "-o",
		"jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
	if again := a.ids(); again != first {
		t.Errorf("the ids began at %d, and at %d after a restart", first, again)
	}
	file := a.file()
	c.MustRun("delete", "pod", "a", "--timeout=1m")
	harness.Eventually(t, "the pod's ids are free", func() error {
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			return fmt.Errorf("%s: %v", file, err)
		}
		return nil
	})
	c.MustRun("delete", "pod", "b", "--timeout=1m")
}

// userPod is a pod with a user namespace.
type userPod struct {
	*testing.T
	cluster rig.Cluster
	node    rig.Node
	name    string
}

func (p userPod) inside(command ...string) string {
	p.Helper()
	return p.cluster.MustRun(append([]string{"exec", p.name, "--"}, command...)...)
}

// dir returns the pod's directory, file the file with its ids.
func (p userPod) dir() string {
	p.Helper()
	pod, err := get(p.T, p.cluster, p.cluster.Namespace, p.name)
	if err != nil {
		p.Fatal(err)
	}
	return filepath.Join(p.node.Root, "pods", string(pod.UID))
}

func (p userPod) file() string { return filepath.Join(p.dir(), "userns") }

// ids returns the first of the pod's ids, which its container and the file agree on.
func (p userPod) ids() (first uint32) {
	p.Helper()
	text, err := os.ReadFile(p.file())
	if err != nil {
		p.Fatal(err)
	}
	type mapping struct{ HostID, ContainerID, Length uint32 }
	var is struct{ UIDMappings, GIDMappings []mapping }
	if err := json.Unmarshal(text, &is); err != nil || len(is.UIDMappings) != 1 {
		p.Fatalf("%s: %v", text, err)
	}
	first = is.UIDMappings[0].HostID
	for _, kind := range []string{"uid", "gid"} {
		want := fmt.Sprintf("0 %d 65536", first)
		got := strings.Join(strings.Fields(p.inside("cat", "/proc/self/"+kind+"_map")), " ")
		if got != want {
			p.Errorf("%s: %s_map is %q, want %q", p.name, kind, got, want)
		}
	}
	return first
}

// mountsAreRoots checks who owns the volumes, inside and on the host, and that they can be read and
// written.
func (p userPod) mountsAreRoots() {
	p.Helper()
	p.inside("touch", "/scratch/made")
	files := []string{"/scratch", "/scratch/made", "/cfg/color", "/token/token"}
	owners := strings.Fields(p.inside(append([]string{"stat", "-L", "-c", "%u:%g"}, files...)...))
	for i, owner := range owners {
		if owner != "0:0" {
			p.Errorf("%s is %s's inside, want root's", files[i], owner)
		}
	}
	if got := p.inside("cat", "/cfg/color"); got != "red" {
		p.Errorf("the config map has %q inside", got)
	}
	if got := p.inside("cat", "/token/token"); strings.Count(got, ".") != 2 {
		p.Errorf("the token is %q inside", got)
	}
	made := filepath.Join(p.dir(), "volumes/kubernetes.io~empty-dir/scratch/made")
	var stat unix.Stat_t
	if err := unix.Stat(made, &stat); err != nil || stat.Uid != 0 || stat.Gid != 0 {
		p.Errorf("%s is %d:%d's on the host, %v; want root's", made, stat.Uid, stat.Gid, err)
	}
}
