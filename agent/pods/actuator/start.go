package actuator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/addresses"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/placement/resources"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// build holds what a sandbox or container of a pod is created from, read once so that its parts
// agree.
type build struct {
	*Actuator
	pod       *v1.Pod
	held      allocation.Pod // its assignments
	resources resources.Node
	node      Node // with the facts of the present hardware and network
	say       about
}

// start is the start of one container.
type start struct {
	build
	c       *v1.Container
	of      podspec.Ref
	sandbox *runtimeapi.PodSandboxConfig
	// imageHandler is the runtime handler that images are for; "": none in particular.
	imageHandler string
	// images holds the runtime's names of the images of image volumes, by volume.
	images map[string]string
}

func (a *Actuator) build(ctx context.Context, pod *v1.Pod) build {
	b := build{Actuator: a, pod: pod, held: a.cfg.State().Pods[pod.UID],
		resources: a.cfg.Resources.Node(), node: a.cfg.Node, say: about{pod, a.cfg.Tell, ctx.Err}}
	b.node.Facts.HostIPs = b.node.Network.IPs()
	b.node.Facts.Allocatable = a.cfg.Hardware().Allocatable
	return b
}

// startContainer creates and starts one container in the newest sandbox.
func (b build) startContainer(ctx context.Context, observed cri.Pod,
	act podworker.Action, yield func()) (made cri.Made, err error) {
	c, _ := podspec.Find(b.pod, act.Container)
	if c == nil || len(observed.Sandboxes) == 0 {
		return made, fmt.Errorf("start container %s: pod %s has no such container, or no sandbox",
			act.Container, b.pod.UID)
	}
	b, err = b.withUsers()
	if err != nil {
		return made, cri.ConfigError(err)
	}
	b.node.Security.ExtraGroups = b.cfg.Volumes.Containers.Groups(b.pod)
	sandbox := observed.Sandboxes[0]
	s := start{build: b, c: c, of: podspec.Ref{Pod: b.pod, Container: c.Name}}
	if s.sandbox, _, err = b.sandboxConfig(sandbox.Attempt); err != nil {
		return made, err
	}
	if s.imageHandler, err = b.imageHandler(ctx); err != nil {
		b.say.failed(s.of, messageOf(err))
		return made, cri.ConfigError(err)
	}
	image, err := b.cfg.Images.Ensure(ctx, cri.ImageRequest{
		Pod: b.pod, Container: c, Handler: s.imageHandler, Sandbox: s.sandbox, Secrets: b.pullSecrets(),
		Restart: act.Attempt > 0, Pulls: yield,
		Report: func(eventType, reason, message string) {
			b.cfg.Tell.Container(s.of, eventType, reason, message)
		},
	})
	if err != nil {
		b.say.failed(s.of, reasonOf(err))
		return made, err
	}
	if s.images, err = s.imageVolumes(ctx, yield); err != nil {
		b.say.failed(s.of, messageOf(err))
		return made, err
	}
	target, err := targetOf(b.pod, observed, c.Name)
	if err != nil {
		b.say.warn("Failed", "Error: "+messageOf(err))
		return made, err
	}
	facts := b.node.Facts
	facts.PodIPs = addresses.OfPod(sandbox.IPs, facts.HostIPs)
	config, leave, err := s.prepare(ctx, cri.ContainerOptions{
		Attempt: act.Attempt, Image: image, Target: target,
		Facts: facts, Security: b.node.Security,
	})
	if err != nil {
		b.say.failed(s.of, messageOf(err))
		return made, err
	}
	defer leave()
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		if err := b.cfg.Volumes.Records.HookPends(b.pod.UID, c.Name, act.Attempt); err != nil {
			return made, cri.ConfigError(err)
		}
	}
	return s.run(ctx, sandbox.ID, config)
}

// targetOf returns the id of the container whose processes an ephemeral container is to see; "" if
// it names none.
func targetOf(pod *v1.Pod, observed cri.Pod, ephemeral string) (string, error) {
	name := podspec.Target(pod, ephemeral)
	if name == "" {
		return "", nil
	}
	target, ok := observed.Container(name)
	if !ok {
		return "", cri.ConfigError(fmt.Errorf("unable to find target container %s", name))
	}
	return target.ID, nil
}

// prepare makes everything that a container needs, and returns its configuration. The caller must
// call leave when the container has started or failed to.
func (s start) prepare(ctx context.Context, o cri.ContainerOptions) (
	config *runtimeapi.ContainerConfig, leave func(), err error) {
	if s.cfg.Objects != nil {
		if o.Objects, err = s.cfg.Objects.Environment(ctx, s.pod, s.c); err != nil {
			return nil, nil, cri.ConfigError(err)
		}
	}
	o.File = func(name, path string) ([]byte, error) {
		return s.cfg.Volumes.Containers.EnvFile(s.pod, name, path)
	}
	if o.Devices, err = s.devices(ctx); err != nil {
		return nil, nil, cri.ConfigError(err)
	}
	if o.Mounts, err = s.mounts(ctx, o); err != nil {
		return nil, nil, err
	}
	if o.BlockDevices, err = s.cfg.Volumes.Containers.Devices(s.pod, s.c); err != nil {
		return nil, nil, cri.ConfigError(err)
	}
	if o.Resources, leave, err = s.cfg.Resources.Enter(ctx, s.pod, s.c); err != nil {
		return nil, nil, &cri.StartError{
			Reason: cri.ReasonPreStartHook, Message: err.Error(), Err: err,
		}
	}
	if config, err = s.containerConfig(o); err != nil {
		leave()
		return nil, nil, err
	}
	return config, leave, nil
}

// run creates the container and starts it.
func (s start) run(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig) (
	made cri.Made, err error) {
	id, err := s.create(ctx, sandboxID, config)
	if err != nil {
		return made, s.say.refused(s.of, cri.ReasonCreateContainer, err, s.flaws(err))
	}
	s.cfg.Tell.Container(s.of, v1.EventTypeNormal, "Created", "Container created")
	if err := s.cfg.Runtime.StartContainer(ctx, id); err != nil {
		return made, s.say.refused(s.of, cri.ReasonRunContainer, err, s.flaws(err))
	}
	s.cfg.Tell.Container(s.of, v1.EventTypeNormal, "Started", "Container started")
	return cri.Made{Sandbox: sandboxID, Container: id}, nil
}

// create makes the directory of the container's log and creates the container. Where log collectors
// expect one, it makes a link to the log.
func (s start) create(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig) (
	string, error) {
	log := filepath.Join(s.sandbox.LogDirectory, config.LogPath)
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return "", err
	}
	id, err := s.cfg.Runtime.CreateContainer(ctx, sandboxID, config, s.sandbox)
	if err != nil || s.node.Logs.Links == "" {
		return id, err
	}
	link := filepath.Join(s.node.Logs.Links, cri.LegacyLogName(s.pod, s.c.Name, id))
	if err := os.Symlink(log, link); err != nil {
		klog.FromContext(ctx).Info("A log has no link", "link", link, "err", err)
	}
	return id, nil
}

// containerConfig returns the container's configuration, annotated with its assignments.
func (s start) containerConfig(o cri.ContainerOptions) (*runtimeapi.ContainerConfig, error) {
	config, err := cri.ContainerConfig(s.pod, s.c, o)
	if err != nil {
		return nil, err
	}
	text, err := handover.Describe(s.c.Name, s.held.Containers[s.c.Name])
	if err != nil {
		return nil, cri.ConfigError(err)
	}
	if text != "" {
		config.Annotations[handover.Annotation] = text
	}
	if text := resize.DescribeContainer(s.c); text != "" {
		config.Annotations[resize.Annotation] = text
	}
	return config, nil
}

// mounts prepares the container's volumes. It needs the environment for subPathExpr.
func (s start) mounts(ctx context.Context, o cri.ContainerOptions) ([]*runtimeapi.Mount, error) {
	env, err := cri.Env(s.pod, s.c, o)
	if err != nil {
		return nil, err
	}
	recursive, err := s.recursiveReadOnly(ctx)
	if err != nil {
		return nil, cri.ConfigError(err)
	}
	mounts, err := s.cfg.Volumes.Containers.Mounts(ctx, s.pod, s.c, volume.Start{
		Attempt: o.Attempt, Env: env, PodIPs: o.Facts.PodIPs, Images: s.images,
		ImageHandler: s.imageHandler, RecursiveReadOnly: recursive,
	})
	if err != nil {
		return nil, cri.ConfigError(err)
	}
	return mounts, nil
}
