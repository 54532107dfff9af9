package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// refused: a group without a user is refused, and so are recursive read-only mounts that are
// writable or propagate.
func refused(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p, dir, group := s.sandbox(t), t.TempDir(), &runtimeapi.Int64Value{Value: 5}
	mount := func(m *runtimeapi.Mount) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) {
			m.HostPath, m.ContainerPath, m.RecursiveReadOnly = dir, "/x", true
			c.Mounts = []*runtimeapi.Mount{m}
		}
	}
	for what, change := range map[string]struct {
		want string
		to   func(*runtimeapi.ContainerConfig)
	}{
		"a group without a user": {"without user", func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.RunAsGroup = group
		}},
		"a writable recursive read-only mount": {"conflicts with RW",
			mount(&runtimeapi.Mount{})},
		// containerd checks this one first if the host's mounts are private.
		"a recursive read-only mount that propagates": {
			"needs private propagation|not a shared or slave mount", mount(&runtimeapi.Mount{
				Readonly:    true,
				Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
			}),
		},
	} {
		config := p.containerConfig("c", s.opts.Forever)
		change.to(config)
		_, err := s.client.Runtime().CreateContainer(ctx, p.id, config, p.config)
		if err == nil || !regexp.MustCompile(change.want).MatchString(err.Error()) {
			t.Errorf("%s: %v, want %q", what, err, change.want)
		}
	}
	if left := p.read().Containers; len(left) > 0 {
		t.Errorf("refused orders left %+v", left)
	}
	config := p.containerConfig("c", s.opts.Forever)
	config.Linux.SecurityContext.RunAsUser = &runtimeapi.Int64Value{Value: 0}
	config.Linux.SecurityContext.RunAsGroup = group
	if _, err := s.client.Runtime().CreateContainer(ctx, p.id, config, p.config); err != nil {
		t.Errorf("a group with a user: %v", err)
	}
	group.Value = 7
	other := s.unmade(t)
	other.config.Linux.SecurityContext.RunAsGroup = group
	if id, err := s.client.Runtime().RunPodSandbox(ctx, other.config, ""); err == nil {
		other.remove(id)
		t.Error("a sandbox with a group and no user was made")
	}
}

// logged creates a pod with a log directory.
func (s *suite) logged(t *testing.T) *pod {
	t.Helper()
	p := s.unmade(t)
	p.config.LogDirectory = t.TempDir()
	p.id = p.make()
	return p
}

func reopensLog(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p, run := s.logged(t), s.client.Runtime()
	config := p.containerConfig("c", s.opts.Forever)
	config.LogPath = "0.log"
	id, err := run.CreateContainer(ctx, p.id, config, p.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.ReopenContainerLog(ctx, id); err == nil {
		t.Error("the log of a container that does not run was reopened")
	}
	if err := run.StartContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(p.config.LogDirectory, config.LogPath)
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	if err := run.ReopenContainerLog(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(log); err != nil {
		t.Errorf("after it was reopened: %v", err)
	}
}

// inspects: a container's environment, mounts and devices can be read back.
func inspects(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p, run, dir := s.sandbox(t), s.client.Runtime(), t.TempDir()
	config := p.containerConfig("c", s.opts.Forever)
	config.Envs = []*runtimeapi.KeyValue{{Key: "COLOUR", Value: []byte("red")}}
	config.Mounts = []*runtimeapi.Mount{{HostPath: dir, ContainerPath: "/data"}}
	config.Devices = []*runtimeapi.Device{
		{HostPath: "/dev/null", ContainerPath: "/dev/nothing", Permissions: "rw"},
	}
	id, err := run.CreateContainer(ctx, p.id, config, p.config)
	if err != nil {
		t.Fatal(err)
	}
	brief, err := run.ContainerStatus(ctx, id, false)
	if err != nil || len(brief.GetInfo()) > 0 {
		t.Errorf("a status that is not verbose has info %v (%v)", brief.GetInfo(), err)
	}
	full, err := run.ContainerStatus(ctx, id, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"COLOUR=red"`, `"container_path":"/data"`, `"runtimeSpec"`, `"` + p.id + `"`,
		`"path":"/dev/nothing","type":"c","major":1,"minor":3`,
	} {
		if !strings.Contains(full.GetInfo()["info"], want) {
			t.Errorf("the info lacks %s: %s", want, full.GetInfo()["info"])
		}
	}
}
