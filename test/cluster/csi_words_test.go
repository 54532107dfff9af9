package cluster_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/test/cluster/rig"
)

// csiFailure is a call that fails or hangs until the driver is told otherwise, and where words of it are
// awaited.
type csiFailure struct {
	order csidriver.Order
	way   string
	// told is in what is read: "describe" (kubectl, of the pod), "explain" (numalet, of the pod), or
	// "problems" (the agent's, of the node).
	command, reported string
}

func csiFailures() (out []csiFailure) {
	for _, one := range []struct{ method, command, reported, hangs string }{
		{"NodeStageVolume", "describe", "FailedMount", "look at its log"},
		{"NodePublishVolume", "describe", "FailedMount", "look at its log"},
		{"NodeUnpublishVolume", "describe", "FailedUnMount", "look at its log"},
		{"NodeUnstageVolume", "problems", "cannot be unstaged", "is not unstaged"},
	} {
		for way, order := range map[string]csidriver.Order{
			"final":     {Code: codes.InvalidArgument, Message: "no such disk"},
			"uncertain": {Code: codes.Unavailable, Message: "the array is away"},
		} {
			order.Method = one.method
			out = append(out, csiFailure{order, way, one.command, one.reported})
		}
		if one.command == "describe" { // events come later
			one.command = "explain"
		}
		out = append(out, csiFailure{csidriver.Order{Method: one.method, Hang: true}, "hangs",
			one.command, one.hangs})
	}
	return out
}

// TestCSIFailureWords: what an operator reads of a pod whose driver fails in a call, with a code after
// which it may still be at work and with another, or does not answer. Then the driver is well, and each
// pod runs or is gone.
func TestCSIFailureWords(t *testing.T) {
	t.Parallel() // each pod has its node
	c := rig.Start(t)
	n := csiNodeOf(t, c, "numalet")
	admin := filepath.Join(t.TempDir(), "admin")
	if err := c.Kubeconfig(admin, "admin", "system:masters"); err != nil {
		t.Fatal(err)
	}
	failures := csiFailures()
	stories := make([]*csiStory, len(failures))
	for i, f := range failures {
		s := &csiStory{Cluster: c, Node: n, csiCase: csiCase{name: strings.ToLower(strings.TrimSuffix(
			strings.TrimPrefix(f.order.Method, "Node"), "Volume")) + "-" + f.way,
			driver: csidriver.Config{NoAttach: true}}, events: map[string]bool{}}
		stories[i] = s
		s.furnish(t)
		s.await(t, "the driver is registered", func() error { return s.isRegistered(t, true) })
		if endsPod(f) {
			s.begin(s.name)
			await(t, c, c.Namespace, s.name, runs)
		}
		s.d.Order(f.order)
	}
	for i, f := range failures {
		if endsPod(f) {
			c.MustRun("delete", "pod", stories[i].name, "--grace-period=1", "--wait=false")
		} else {
			stories[i].begin(stories[i].name)
		}
	}
	read := func(s *csiStory, command string) (text string, err error) {
		switch command {
		case "describe":
			return s.Run("describe", "pod", s.name)
		case "explain":
			return explained(admin, n.Name, s.Namespace+"/"+s.name)
		default:
			return problemsOf(s)
		}
	}
	said := spoken{}
	for i, f := range failures {
		s := stories[i]
		s.await(t, s.name+" is told of", func() error {
			text, err := read(s, f.command)
			if err == nil && !strings.Contains(text, f.reported) {
				err = fmt.Errorf("%s says\n%s", f.command, text)
			}
			return err
		})
		commands := []string{"describe", "explain"}
		if f.command == "problems" {
			commands = []string{f.command}
		}
		for _, command := range commands {
			text, err := read(s, command)
			if err != nil {
				t.Fatal(err)
			}
			said.add(s.name, command, text, s.nameless)
		}
	}
	for i, f := range failures {
		stories[i].d.Order()
		if f.order.Hang { // an answer is awaited for two minutes
			stories[i].d.Process.Stop()
			if err := stories[i].d.Process.Start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, f := range failures {
		if !endsPod(f) {
			await(t, c, c.Namespace, stories[i].name, runs)
			c.MustRun("delete", "pod", stories[i].name, "--timeout=2m")
		}
		stories[i].ended(t, "none")
	}
	said.compare(t, "csi-words")
	for _, s := range stories {
		if text, err := problemsOf(s); err != nil || text != "" {
			t.Errorf("%v: the agent still says %s", err, text)
		}
	}
}

// endsPod reports whether the failure is met when the pod ends.
func endsPod(f csiFailure) bool { return strings.Contains(f.order.Method, "NodeUn") }

// problemsOf returns what the agent says is wrong with the story's driver.
func problemsOf(s *csiStory) (out string, err error) {
	text, err := s.Run("get", "--raw", "/api/v1/nodes/"+s.Name+"/proxy/problems")
	if err != nil {
		return "", err
	}
	var all []complaint.Problem
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	for _, one := range all {
		if strings.Contains(one.Message, s.d.Name) {
			out += fmt.Sprintf("%s %s: %s\n", one.Source, one.Reason, one.Message)
		}
	}
	return out, nil
}
