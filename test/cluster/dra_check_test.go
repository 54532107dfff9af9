package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// allocated creates a claim and allocates a device to it, as the scheduler does.
func allocated(t *testing.T, c rig.Cluster, name, driver, pool, device string) *resourcev1.ResourceClaim {
	t.Helper()
	api := c.Client.ResourceV1().ResourceClaims(c.Namespace)
	claim, err := api.Create(t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "one",
				Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: driver}}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "one", Driver: driver, Pool: pool, Device: device}}}}
	claim, err = api.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// TestDriverCheck: Kubernetes' test driver passes the checks of drivers, also of its restart.
func TestDriverCheck(t *testing.T) {
	const driver, node = "checked.example.com", "checked"
	c := rig.Start(t)
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
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cdi, slices := filepath.Join(dir, "cdi"), filepath.Join(dir, "slices.yaml")
	text := fmt.Sprintf(`{kind: ResourceSlice, spec: {driver: %s, pool: {name: %s}, devices: [
 {name: device-00}, {name: device-01}]}}`, driver, node)
	for _, err := range []error{os.Mkdir(cdi, 0o750), os.WriteFile(slices, []byte(text), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	starts := fmt.Sprintf("sh -c 'mkdir -p {dir}/%[1]s && exec %[2]s kubelet-plugin --drivername=%[1]s "+
		"--kubeconfig=%[3]s --node-name=%[4]s --num-devices=2 --cdi-dir=%[5]s "+
		"--plugin-registration-path={registry} --datadir={dir}'", driver,
		filepath.Join(rig.Binaries(t), "dra-test-driver"), c.AdminKubeconfig(), node, cdi)
	args := []string{"plugin", "check", "--dra=" + driver, "--exec=" + starts, "--cdi-dir=" + cdi,
		"--slices=" + slices, "--plugin-log=" + filepath.Join(dir, "log"),
		"--transcript=" + filepath.Join(dir, "calls")}
	for _, device := range []string{"device-00", "device-01"} {
		claim := allocated(t, c, "of-"+device, driver, node, device)
		args = append(args, fmt.Sprintf("--claim=%s/%s/%s", claim.Namespace, claim.Name, claim.UID))
	}
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "0 failed") {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
		t.Fatalf("%v\n%s\nthe driver said\n%s\nthe calls are\n%s", err, out, log, calls)
	}
	t.Logf("%s", out)
}
