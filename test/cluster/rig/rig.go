// Package rig gives tests a real cluster: one control plane for all tests of a process, and nodes.
package rig

import (
	"context"
	"os"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/numalet/numalet/cmd/numalet-lab/controlplane"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// Main is for TestMain of packages that use Start: it runs the tests, stops what they share and
// ends the process.
func Main(m *testing.M) {
	harness.Main(m, func() {
		if shared.plane != nil {
			shared.plane.Stop()
		}
		if shared.dir != "" {
			os.RemoveAll(shared.dir)
		}
	})
}

// shared belongs to all tests of this process.
var shared struct {
	sync.Mutex
	dir     string
	plane   *controlplane.Cluster
	err     error
	audit   bool
	metrics bool // metrics-server runs
}

// Audited makes the API server of the tests that start it later log every request; see AuditLog.
func Audited() { shared.audit = true }

// AuditLog returns the file with a line of JSON for each request, an event of audit.k8s.io/v1.
func AuditLog() string { return shared.plane.AuditLog() }

// Cluster is the shared control plane as one test sees it.
type Cluster struct {
	*controlplane.Cluster
	// Client may do everything.
	Client kubernetes.Interface
	// Namespace is the test's own, deleted at its end.
	Namespace string

	t        testing.TB
	binaries string
	env      []string // of kubectl, beside the test's own
}

// With returns the cluster with more variables ("NAME=value") in the environment of kubectl.
func (c Cluster) With(env ...string) Cluster {
	c.env = env
	return c
}

// Gates returns the feature gates that are on in the shared control plane. They are off by default,
// and they let pods have fields whose effect tests compare on nodes that have the gates on, too.
func Gates() []string {
	return []string{"GRPCContainerProbeTLS", "H2CContainerProbe", "ImageVolumeWithDigest",
		"TaintTolerationComparisonOperators", "UserNamespacesHostNetworkSupport"}
}

// Start returns the control plane, which the first test that asks for it starts. Without servers
// the test is skipped; in CI it fails.
func Start(t testing.TB) Cluster {
	t.Helper()
	binaries := Binaries(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.plane == nil && shared.err == nil {
		shared.err = start(binaries)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return as(t, shared.plane, binaries)
}

// as returns the control plane as the test sees it.
func as(t testing.TB, plane *controlplane.Cluster, binaries string) Cluster {
	t.Helper()
	client, err := plane.Client()
	if err != nil {
		t.Fatal(err)
	}
	c := Cluster{Cluster: plane, Client: client, t: t, binaries: binaries}
	c.makeNamespace()
	return c
}

// Own returns a control plane that no other test uses, for tests that affect all of it.
func Own(t testing.TB) Cluster { return own(t, controlplane.Config{}) }

// Gated is Own with these feature gates.
func Gated(t testing.TB, gates ...string) Cluster {
	return own(t, controlplane.Config{FeatureGates: gates})
}

// Limited is Own with a bound in bytes on the memory of each server; 0: none.
func Limited(t testing.TB, memory uint64) Cluster {
	return own(t, controlplane.Config{Memory: memory})
}

func own(t testing.TB, cfg controlplane.Config) Cluster {
	t.Helper()
	cfg.Binaries = Binaries(t)
	dir, err := os.MkdirTemp("", "nl-") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg.Dir = dir
	plane, err := controlplane.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Stop)
	return as(t, plane, cfg.Binaries)
}

// Another returns the cluster with another namespace.
func (c Cluster) Another() Cluster { return as(c.t, c.Cluster, c.binaries) }

// Metrics starts metrics-server, if no test has.
func (c Cluster) Metrics() {
	c.t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.metrics {
		return
	}
	if err := c.AddMetrics(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	shared.metrics = true
}

func start(binaries string) (err error) {
	if shared.dir, err = os.MkdirTemp("", "nl-"); err != nil {
		return err
	}
	shared.plane, err = controlplane.Start(context.Background(),
		controlplane.Config{Binaries: binaries, Dir: shared.dir, Audit: shared.audit,
			FeatureGates: Gates()})
	return err
}

// Binaries returns the folder with the servers, kubectl and the kubelet: $NUMALET_CLUSTER, or what
// "test/tools/build.sh cluster" builds, which takes many minutes the first time.
func Binaries(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("NUMALET_CLUSTER"); dir != "" {
		return dir
	}
	return scratch.Build(t, "the servers of a cluster", "build.sh", "cluster")
}
