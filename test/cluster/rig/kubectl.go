package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/numalet/numalet/test/harness"
)

// Kubectl returns a command of the administrator's kubectl in the test's namespace. It is killed
// when ctx ends.
func (c Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.binaries, "kubectl"),
		append([]string{"--namespace=" + c.Namespace}, args...)...)
	admin := c.AdminKubeconfig()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+admin, "HOME="+filepath.Dir(admin)) // for its cache
	cmd.Env = append(cmd.Env, c.env...)
	return cmd
}

// Run runs kubectl until it ends and returns what it prints.
func (c Cluster) Run(args ...string) (string, error) {
	return c.RunWith("", args...)
}

// RunWith runs kubectl with this standard input.
func (c Cluster) RunWith(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	cmd := c.Kubectl(ctx, args...)
	var out, errors bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errors
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(errors.String()))
	}
	return out.String(), nil
}

// MustRun is Run, and an error fails the test.
func (c Cluster) MustRun(args ...string) string {
	c.t.Helper()
	out, err := c.Run(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// Apply creates or changes objects, written as YAML, as kubectl apply does.
func (c Cluster) Apply(objects string) {
	c.t.Helper()
	if _, err := c.RunWith(objects, "apply", "-f", "-"); err != nil {
		c.t.Fatal(err)
	}
}
