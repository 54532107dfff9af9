package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// checked is a driver that "numalet plugin check" starts. The API server has its node, which runs no
// agent.
type checked struct {
	rig.Cluster
	t            *testing.T
	driver, node string
	dir, cdi     string
	// slices is a file with the driver's ResourceSlices.
	slices string
}

func newChecked(t *testing.T, driver, node string) *checked {
	t.Helper()
	c := &checked{Cluster: rig.Start(t), t: t, driver: driver, node: node, dir: t.TempDir()}
	c.cdi, c.slices = filepath.Join(c.dir, "cdi"), filepath.Join(c.dir, "slices.yaml")
	if err := os.Mkdir(c.cdi, 0o750); err != nil {
		t.Fatal(err)
	}
	nodes := c.Client.CoreV1().Nodes()
	if _, err := nodes.Create(t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Delete(context.Background(), node, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return c
}

// device is an allocated device of the driver; share is "" for a whole one.
func (c *checked) device(name, share string) resourcev1.DeviceRequestAllocationResult {
	out := resourcev1.DeviceRequestAllocationResult{Request: "one", Driver: c.driver, Pool: c.node,
		Device: name}
	if share != "" {
		out.ShareID = new(types.UID(share))
	}
	return out
}

// claim creates a claim and allocates devices to it, as docs/dra-drivers.md does. It returns what names
// the claim to the check.
func (c *checked) claim(name string, devices ...resourcev1.DeviceRequestAllocationResult) string {
	c.t.Helper()
	api := c.Client.ResourceV1().ResourceClaims(c.Namespace)
	claim, err := api.Create(c.t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "one",
				Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: c.driver,
					AllocationMode: resourcev1.DeviceAllocationModeExactCount,
					Count:          int64(len(devices))}}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"allocation": resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: devices}}}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.MustRun("patch", "resourceclaim", name, "--subresource=status", "--type=merge", "--patch="+string(patch))
	return fmt.Sprintf("--claim=%s/%s/%s", claim.Namespace, claim.Name, claim.UID)
}

// check has the command's checks pass, but for those that are skipped; want says how many pass.
func (c *checked) check(starts, want string, claims ...string) {
	c.t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		c.t.Fatal(err)
	}
	args := append([]string{"plugin", "check", "--dra=" + c.driver, "--exec=" + starts,
		"--cdi-dir=" + c.cdi, "--slices=" + c.slices, "--plugin-log=" + filepath.Join(c.dir, "log"),
		"--transcript=" + filepath.Join(c.dir, "calls")}, claims...)
	out, err := exec.CommandContext(c.t.Context(), binary, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		calls, _ := os.ReadFile(filepath.Join(c.dir, "calls"))
		c.t.Fatalf("%v\n%s\nwant %q\nthe driver said\n%s\nthe calls are\n%s", err, out, want, log, calls)
	}
	c.t.Logf("%s", out)
}

// TestDriverCheck: Kubernetes' test driver passes the checks of drivers, also of its restart.
func TestDriverCheck(t *testing.T) {
	c := newChecked(t, "checked.example.com", "checked")
	text := fmt.Sprintf(`{kind: ResourceSlice, spec: {driver: %s, pool: {name: %s}, devices: [
 {name: device-00}, {name: device-01}]}}`, c.driver, c.node)
	if err := os.WriteFile(c.slices, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.check(fmt.Sprintf("sh -c 'mkdir -p {dir}/%[1]s && exec %[2]s kubelet-plugin --drivername=%[1]s "+
		"--kubeconfig=%[3]s --node-name=%[4]s --num-devices=2 --cdi-dir=%[5]s "+
		"--plugin-registration-path={registry} --datadir={dir}'", c.driver,
		filepath.Join(rig.Binaries(t), "dra-test-driver"), c.AdminKubeconfig(), c.node, c.cdi),
		"0 failed", c.claim("first", c.device("device-00", "")),
		c.claim("second", c.device("device-01", "")))
}
