package cluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/deviceplugin/dracheck"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// publish has the driver publish its devices once, as on a node where it runs before it is checked,
// and returns their names.
func (c *checked) publish(starts string, count int) (names []string) {
	c.t.Helper()
	root := scratch.Dir(c.t)
	stop, err := dracheck.ServeNoPods(root)
	if err != nil {
		c.t.Fatal(err)
	}
	defer stop()
	cmd := exec.Command("/bin/sh", "-c", "exec "+strings.ReplaceAll(starts, "{root}", root))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("the driver that published its devices said\n%s", said.String())
		}
	})
	var list *resourcev1.ResourceSliceList
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			c.t.Errorf("it ended with %v", err)
		}
	}()
	harness.Eventually(c.t, fmt.Sprintf("%d devices are published", count), func() (err error) {
		list, err = c.Client.ResourceV1().ResourceSlices().List(c.t.Context(), metav1.ListOptions{
			FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=" + c.driver})
		if names = nil; err != nil {
			return err
		}
		for _, slice := range list.Items {
			for _, d := range slice.Spec.Devices {
				names = append(names, d.Name)
			}
		}
		if len(names) != count {
			err = fmt.Errorf("there are %q", names)
		}
		return err
	})
	text, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(c.slices, text, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return names
}

// leavesNothing expects that no claim has a CDI spec any more.
func (c *checked) leavesNothing() {
	c.t.Helper()
	if left, err := filepath.Glob(filepath.Join(c.cdi, "*-claim_*")); err != nil || len(left) > 0 {
		c.t.Errorf("left behind: %q, %v", left, err)
	}
}

// ownPasses: each check passes of our drivers, none is left out.
const ownPasses = "16 passed, 0 failed, 0 with warnings, 0 not made"

// TestGPUDriverCheck: the GPU plugin, as a driver of claims with a simulated machine, passes the
// checks of drivers, with whole GPUs and with shares of one.
func TestGPUDriverCheck(t *testing.T) {
	binary := harness.GPUPlugin(t)
	for shares, claims := range map[string]func(c *checked, names []string) []string{
		"none": func(c *checked, names []string) []string {
			return []string{c.claim("one", c.device(names[0], "")),
				c.claim("two", c.device(names[5], ""), c.device(names[1], ""))}
		},
		"2": func(c *checked, names []string) []string {
			share := func(last string) string { return "3f2504e0-4f89-41d3-9a0c-0305e82c330" + last }
			return []string{c.claim("one", c.device(names[7], share("1"))),
				c.claim("other", c.device(names[7], share("2")), c.device(names[2], share("3")))}
		},
	} {
		t.Run("shares "+shares, func(t *testing.T) {
			c := newChecked(t, "gpu-"+shares+".example.com", "checked-gpus-"+shares)
			starts := fmt.Sprintf("%s --dra --mock=dgxh100 --dra-driver=%s --dra-shares=%s "+
				"--kubeconfig=%s --node-name=%s --cdi-dir=%s --dra-root-dir={root}", binary, c.driver,
				shares, c.AdminKubeconfig(), c.node, c.cdi)
			c.check(starts, ownPasses, claims(c, c.publish(starts, 8))...)
			c.leavesNothing()
		})
	}
}

// made has "numalet driver claim" make a claim of a device that no other claim has.
func (c *checked) made() string {
	c.t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(c.t.Context(), binary, "driver", "claim", c.driver, "--node", c.node,
		"--namespace", c.Namespace, "--kubeconfig", c.AdminKubeconfig())
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("numalet driver claim: %v\n%s", err, out)
	}
	return "--claim=" + strings.TrimSpace(string(out))
}

// TestInterfaceDriverCheck: the plugin for network interfaces, as a driver of claims, passes the
// checks of drivers. The claim of one interface is made by "numalet driver claim".
func TestInterfaceDriverCheck(t *testing.T) {
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	c, nics := newChecked(t, "eni.example.com", "checked-interfaces"), newNICs(t)
	starts := fmt.Sprintf("%s plugin eni --dra --name=%s,%s --node-ip=%s --dra-driver=%s "+
		"--kubeconfig=%s --node-name=%s --cdi-dir=%s --dra-root-dir={root} --state-dir=%s "+
		"--pod-resources={root}/pod-resources/kubelet.sock", binary, nics.all[0].name, nics.all[1].name,
		strings.Join(nics.addressesOfNode(), ","), c.driver, c.AdminKubeconfig(), c.node, c.cdi,
		filepath.Join(nics.dir, "state"))
	names := c.publish(starts, 2)
	c.check(starts, ownPasses, c.claim("second", c.device(names[1], "")), c.made())
	c.leavesNothing()
}
