package cluster_test

import (
	"context"
	"fmt"

	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/drivers"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// madeClaim is the name of a claim that was made for a pod.
var madeClaim = regexp.MustCompile(`\bPOD-gpu-[a-z0-9]{5}\b`)

// draFailure is a call that fails or hangs until the driver is told otherwise, and a word of it.
type draFailure struct {
	name, method string
	trouble      drivers.Trouble
	reported     []string
}

func draFailures() (out []draFailure) {
	for _, method := range []string{drivers.Prepare, drivers.Unprepare} {
		of := func(fails func(context.Context) error) func(context.Context, drivers.Call) error {
			return func(ctx context.Context, c drivers.Call) error {
				if c.Method != method {
					return nil
				}
				return fails(ctx)
			}
		}
		name := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(method, "Node"), "Resources"))
		out = append(out,
			draFailure{name + "-refused", method, drivers.Trouble{Answer: refuse(method)}, []string{"no such partition"}},
			draFailure{name + "-fails", method, drivers.Trouble{Before: of(func(context.Context) error {
				return status.Error(codes.Unavailable, "the fabric is away")
			})}, []string{"the fabric is away"}},
			draFailure{name + "-hangs", method, drivers.Trouble{Before: of(func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})}, []string{"no answer to NodePrepareResources yet", "has not answered NodeUnprepareResources"}})
	}
	return out
}

// refuse has a driver's answer be that it can do nothing for each claim.
func refuse(method string) func(drivers.Call, []byte) []byte {
	return func(c drivers.Call, answer []byte) []byte {
		prepared := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
		released := &drav1.NodeUnprepareResourcesResponse{
			Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
		for _, one := range c.Claims {
			prepared.Claims[string(one.UID)] = &drav1.NodePrepareResourceResponse{Error: "no such partition"}
			released.Claims[string(one.UID)] = &drav1.NodeUnprepareResourceResponse{Error: "no such partition"}
		}
		var refusal proto.Message = prepared
		switch {
		case c.Method != method:
			return answer
		case method == drivers.Unprepare:
			refusal = released
		}
		raw, err := proto.Marshal(refusal)
		if err != nil {
			return answer
		}
		return raw
	}
}

// TestDRAFailureWords: what an operator reads of a pod whose driver refuses its claim, fails in a call or
// does not answer. Then the driver is well, and each pod runs or is gone.
func TestDRAFailureWords(t *testing.T) {
	t.Parallel() // each pod has its node
	c := rig.Start(t)
	cdi := t.TempDir()
	n := c.Join(harness.NewWith(t, crisim.Config{CDIDirs: []string{cdi}}), "dra-words")
	n.Start()
	c.AwaitReady(n.Name)
	admin := filepath.Join(t.TempDir(), "admin")
	if err := c.Kubeconfig(admin, "admin", "system:masters"); err != nil {
		t.Fatal(err)
	}
	failures, of := draFailures(), map[string]*drivers.Driver{}
	for _, f := range failures {
		d := n.Driver(drivers.Config{Name: f.name + ".example.com", Devices: 1, CDI: cdi})
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		of[f.name] = d
		if f.method == drivers.Prepare {
			d.Set(f.trouble)
		}
		c.Apply(strings.NewReplacer("NAME", f.name, "NODE", n.Name).Replace(failingPod))
		t.Cleanup(func() { _, _ = c.Run("delete", "deviceclass", d.Name()) })
	}
	for _, f := range failures {
		if f.method == drivers.Unprepare {
			await(t, c, c.Namespace, f.name, runs)
			of[f.name].Set(f.trouble)
			c.MustRun("delete", "pod", f.name, "--wait=false")
		}
	}
	said := spoken{}
	for _, f := range failures {
		harness.Eventually(t, f.name+" is told of", func() error {
			text, err := explained(admin, n.Name, c.Namespace+"/"+f.name)
			if err == nil && !slices.ContainsFunc(f.reported, func(one string) bool { return strings.Contains(text, one) }) {
				err = fmt.Errorf("explain says\n%s", text)
			}
			return err
		})
	}
	for _, f := range failures {
		nameless := func(text string) string {
			return madeClaim.ReplaceAllString(nameless(text, n.Name, n.Dir, "DIR", c.Namespace, "NS", f.name, "POD"),
				"POD-gpu-*")
		}
		said.add(f.name, "describe", c.MustRun("describe", "pod", f.name), nameless)
		text, err := explained(admin, n.Name, c.Namespace+"/"+f.name)
		if err != nil {
			t.Fatal(err)
		}
		said.add(f.name, "explain", text, nameless)
	}
	for _, f := range failures {
		of[f.name].Set(drivers.Trouble{})
	}
	for _, f := range failures {
		if f.method == drivers.Prepare {
			await(t, c, c.Namespace, f.name, runs)
			c.MustRun("delete", "pod", f.name, "--wait=false")
		}
	}
	for _, f := range failures {
		c.MustRun("wait", "--for=delete", "pod/"+f.name, "--timeout=2m")
	}
	said.compare(t, "dra-words")
}
